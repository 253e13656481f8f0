"""A home server that systemd or a container engine runs: stopped and started by its name, never by signals of ours.

Decides how one is recognised and who is asked (`user:` units are the login user's own, `docker:` a container).
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import PurePosixPath

from optimizer.clock import Deadline
from optimizer.errors import CommandFailed, NeedsAttention
from optimizer.remote import process, scripts
from optimizer.remote.base import HomeServer, HostLink, RunningServer, StopProof

UNIT = re.compile(r"/([A-Za-z0-9:_.\\@-]+\.service)")
USER_PREFIX = "user:"
CONTAINERS = ("docker", "podman", "nerdctl")
"""The same as in `r_is_container` of lib.sh."""
CONTAINER_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
KEEPERS = {"docker.service", "containerd.service", "supervisor.service", "supervisord.service"}
"""Each runs the servers of many: stopped only when its owner names it."""
STOP_POLL_S = 0.2


def unit_of(cgroup: str) -> str | None:
    """Return the unit of a cgroup path: `x.service`, or `user:x.service` for one of a user's manager."""
    names = UNIT.findall(cgroup)
    if not names:
        return None
    if names[0].startswith("user@"):
        return USER_PREFIX + names[-1] if len(names) > 1 else None
    return None if names[-1] in KEEPERS else str(names[-1])


def container_of(command: Sequence[str]) -> str | None:
    """Return `docker:NAME` for a command like `docker start -a NAME`: such a home is stopped by its name as well."""
    program = PurePosixPath(command[0]).name if command else ""
    words = [w for w in command[1:] if w != "container" and not w.startswith("-")]
    if program not in CONTAINERS or len(words) != 2 or words[0] != "start" or not CONTAINER_NAME.match(words[1]):
        return None
    return f"{program}:{words[1]}"


def runs(link: HostLink, unit: str, session: int, *, deadline: Deadline) -> bool:
    """Say whether a server in this session is what the unit runs, not a job that cron or sshd once started in it."""
    done = scripts.call(link, "unit_session", *_named(unit), deadline=deadline)
    return done.text.strip() in {"", str(session)}


def _call(link: HostLink, home: HomeServer, verb: str, *, run_dir: str, fence: int | None, deadline: Deadline) -> None:
    unit = home.systemd_unit or ""
    try:
        scripts.call(
            link, "unit", run_dir, process.fence_word(fence), process.lock_wait(deadline), verb, unit, deadline=deadline
        )
    except CommandFailed as error:
        raise CommandFailed(
            link.name,
            f"{link.name}: {_said(verb, unit)} failed: {error.stderr.strip()[-300:]}",
            exit_code=error.exit_code,
            stderr=error.stderr,
            remedy="let the login user manage it (a polkit rule, docker's group, or sudo without a password)",
        ) from error


def _said(verb: str, unit: str) -> str:
    program, colon, name = unit.rpartition(":")
    return f"{program} {verb} {name}" if colon and program in CONTAINERS else f"systemctl {verb} {unit}"


def _named(unit: str) -> tuple[str, str]:
    """Return the manager as systemctl's option, and the unit's own name."""
    return "--user" if unit.startswith(USER_PREFIX) else "--system", unit.removeprefix(USER_PREFIX)


def stop(link: HostLink, home: HomeServer, *, run_dir: str, fence: int | None, deadline: Deadline) -> StopProof:
    """Stop the unit and wait until its port is free. Raises CommandFailed, NeedsAttention, FenceRefused, HostBusy."""
    began = time.monotonic()
    _call(link, home, "stop", run_dir=run_dir, fence=fence, deadline=deadline)
    while process.listeners(link, home.port, deadline.sooner(process.COMMAND_S)):
        if deadline.left_s < STOP_POLL_S:
            raise NeedsAttention(
                link.name,
                f"{link.name}: {home.systemd_unit} is stopped but port {home.port} is still held",
                remedy="look who listens there; another unit or a process outside the unit serves it",
            )
        time.sleep(STOP_POLL_S)
    return StopProof((), killed=False, port_free=True, gpu_memory_back=True, elapsed_s=time.monotonic() - began)


def start(link: HostLink, home: HomeServer, *, run_dir: str, fence: int | None, deadline: Deadline) -> RunningServer:
    """Start the unit. Raises CommandFailed, FenceRefused, HostBusy."""
    assert home.systemd_unit
    _call(link, home, "start", run_dir=run_dir, fence=fence, deadline=deadline)
    return RunningServer(
        run_id="",
        pid=0,
        start_ticks=0,
        run_dir="",
        log_path="",
        port=home.port,
        command_line=_said("start", home.systemd_unit),
        unit=home.systemd_unit,
        kind="home",
    )
