"""The dead man's switch: a script on the host that puts the original server back when Ratchet stays silent.

Decides what the guard is given (home, grace, deadline) and reads its log. What it does then is in `sh/guard.sh`, one
POSIX sh file without dependencies; all its times are the host's own uptime, so that no clock has to agree.
"""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from optimizer.clock import Deadline
from optimizer.remote import launcher, process, scripts
from optimizer.remote.base import HomeServer, HostLink

COMMAND_S = 20.0
LOCK_WAIT_S = 15.0
HISTORY_LINES = 200


@dataclass(frozen=True)
class GuardState:
    """What stands on the host."""

    armed: bool
    alive: bool
    fired: str
    """Time and reason when it has acted since it was last armed; else empty."""


def arm(
    link: HostLink,
    home: HomeServer,
    *,
    run_dir: str,
    fence: int,
    deadline_at: datetime | None,
    grace_s: float,
    deadline: Deadline | None = None,
) -> str:
    """Put the guard on the host and start it; returns the run id that home would be started under.

    `deadline_at` is when home must serve again at the latest (aware), `grace_s` the longest silence allowed.
    Arming takes back a host on which a guard has acted.

    Raises:
        FenceRefused, HostBusy: another owner; the old guard, if any, stands.
        CommandFailed: the guard did not start.
    """
    run_id = process.new_run_id()
    start = "exit 0"
    if not home.systemd_unit:
        start = launcher.script(
            home.argv, home.env, home.cwd, run_id=run_id, clean_env=home.found == "proc", user=home.user,
            umask=home.umask,
        )  # fmt: skip
    meta = json.dumps({"port": home.port, "command_line": launcher.masked_command(home.argv, home.env)})
    scripts.call(
        link, "guard_arm", run_dir, str(fence), str(int(LOCK_WAIT_S * 100)), secrets.token_hex(8),
        _hundredths(grace_s), _until(deadline_at), run_id, str(home.port), home.systemd_unit or "-", meta, start,
        scripts.text("guard"), deadline=deadline or Deadline.after(COMMAND_S + LOCK_WAIT_S),
    )  # fmt: skip
    return run_id


def renew(
    link: HostLink, *, run_dir: str, fence: int, deadline_at: datetime | None, grace_s: float,
    deadline: Deadline | None = None,
) -> bool:  # fmt: skip
    """Show a sign of life; a guard that was killed is started again. Returns False when it had to be.

    An outage is not waited for: the caller renews again, and its own lease must not wait for the host.

    Raises:
        FenceRefused: a newer owner, or the guard has acted: the host is no longer ours.
        NotFound: no guard is armed.
    """
    done = scripts.call(
        link, "guard_renew", run_dir, str(fence), _hundredths(grace_s), _until(deadline_at),
        deadline=deadline or Deadline.after(COMMAND_S), outage_s=0.0,
    )  # fmt: skip
    return done.text.strip() != "restarted"


def disarm(link: HostLink, *, run_dir: str, fence: int, deadline: Deadline | None = None) -> None:
    """Take the guard away after a clean finish; harmless when there is none. Raises FenceRefused, HostBusy."""
    scripts.call(
        link, "guard_disarm", run_dir, str(fence), str(int(LOCK_WAIT_S * 100)),
        deadline=deadline or Deadline.after(COMMAND_S + LOCK_WAIT_S),
    )  # fmt: skip


def history(link: HostLink, *, run_dir: str, deadline: Deadline | None = None) -> list[dict[str, Any]]:
    """Return what guards did on the host, oldest first: `at`, `event`, `detail`, `uptime_s`.

    Events: armed, fired, stopped, stuck, home_started, home_serving, home_died, home_failed, done.
    """
    body = scripts.text("lib") + f'r_base "$1"\ntail -n {HISTORY_LINES} "$BASE/guard/log" 2>/dev/null\nexit 0\n'
    deadline = deadline or Deadline.after(COMMAND_S)
    done = scripts.persist(link, lambda limit: link.sh(body, run_dir, deadline=limit), deadline)
    events = []
    for line in done.text.splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue  # a line cut by a full disk
    return events


def state(link: HostLink, *, run_dir: str, deadline: Deadline | None = None) -> GuardState:
    """Say whether a guard is armed and alive, and whether it has acted."""
    body = scripts.text("lib") + (
        'r_base "$1"\nG=$BASE/guard\n[ -s "$G/token" ] && echo armed\nr_guard_alive "$G" && echo alive\n'
        '[ -s "$G/fired" ] && sed "s/^/fired /" "$G/fired"\nexit 0\n'
    )
    deadline = deadline or Deadline.after(COMMAND_S)
    done = scripts.persist(link, lambda limit: link.sh(body, run_dir, deadline=limit), deadline)
    lines = done.text.splitlines()
    fired = next((line.removeprefix("fired ") for line in lines if line.startswith("fired ")), "")
    return GuardState("armed" in lines, "alive" in lines, fired)


def _hundredths(seconds: float) -> str:
    return str(max(1, math.ceil(seconds * 100)))


def _until(deadline_at: datetime | None) -> str:
    """Hundredths of a second from now to the deadline; one that has passed is due at once; 0 stands for none."""
    if deadline_at is None:
        return "0"
    return _hundredths((deadline_at - datetime.now(UTC)).total_seconds())
