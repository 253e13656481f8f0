"""A small private file on the host itself, for what must not leave it: the home server's secrets.

Decides where it lies (`run_dir/vault/NAME`, readable by its owner alone); what is in it is the caller's business.
"""

from __future__ import annotations

import re

from optimizer.clock import Deadline
from optimizer.errors import CommandFailed
from optimizer.remote import scripts
from optimizer.remote.base import HostLink

NAME = re.compile(r"^[a-z0-9-]{1,64}$")
KEEP = """r_base "$1"
umask 077
V=$BASE/vault/$2
mkdir -p "$BASE/vault" && cat >"$V.part" && mv "$V.part" "$V"
"""
FETCH = 'r_base "$1"\n[ -f "$BASE/vault/$2" ] || exit 3\ncat "$BASE/vault/$2"\n'


def keep(link: HostLink, name: str, data: bytes, *, run_dir: str, deadline: Deadline) -> None:
    """Write `data` whole or not at all. Raises CommandFailed when the host cannot keep it."""
    assert NAME.match(name)
    done = link.sh(scripts.text("lib") + KEEP, run_dir, name, deadline=deadline, stdin=data)
    if done.exit_code != 0:
        raise CommandFailed(
            link.name,
            f"{link.name}: {run_dir} cannot keep a private file: {done.error_text.strip()[-200:]}",
            exit_code=done.exit_code,
            stderr=done.error_text,
            remedy="check that run_dir is writable and the disk is not full",
        )


def fetch(link: HostLink, name: str, *, run_dir: str, deadline: Deadline) -> bytes | None:
    """Return what was kept under `name`; None when there is nothing."""
    assert NAME.match(name)
    done = link.sh(scripts.text("lib") + FETCH, run_dir, name, deadline=deadline)
    return done.stdout if done.exit_code == 0 else None
