"""A home server that systemd runs: stopped and started as its unit, never by signals of ours.

Decides how a unit is recognised and which systemctl is meant (`user:` units are the login user's own).
"""

from __future__ import annotations

import re
import time

from optimizer.clock import Deadline
from optimizer.errors import CommandFailed, NeedsAttention
from optimizer.remote import process, scripts
from optimizer.remote.base import HomeServer, HostLink, RunningServer, StopProof

UNIT = re.compile(r"/([A-Za-z0-9:_.\\@-]+\.service)")
USER_PREFIX = "user:"
STOP_POLL_S = 0.2


def unit_of(cgroup: str) -> str | None:
    """Return the unit of a cgroup path: `x.service`, or `user:x.service` for one of a user's manager."""
    names = UNIT.findall(cgroup)
    if not names:
        return None
    if names[0].startswith("user@"):
        return USER_PREFIX + names[-1] if len(names) > 1 else None
    return str(names[-1])


def runs(link: HostLink, unit: str, session: int, *, deadline: Deadline) -> bool:
    """Say whether a server in this session is what the unit runs, not a job that cron or sshd once started in it."""
    done = scripts.call(link, "unit_session", *_named(unit), deadline=deadline)
    return done.text.strip() in {"", str(session)}


def _call(link: HostLink, home: HomeServer, verb: str, *, run_dir: str, fence: int | None, deadline: Deadline) -> None:
    unit = home.systemd_unit or ""
    manager, name = _named(unit)
    try:
        scripts.call(
            link, "unit", run_dir, process.fence_word(fence), process.lock_wait(deadline), verb, manager, name,
            deadline=deadline,
        )  # fmt: skip
    except CommandFailed as error:
        raise CommandFailed(
            link.name,
            f"{link.name}: systemctl {verb} {unit} failed: {error.stderr.strip()[-300:]}",
            exit_code=error.exit_code,
            stderr=error.stderr,
            remedy="let the login user manage this unit (a polkit rule or sudo without a password), or log in as root",
        ) from error


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
    manager, name = _named(home.systemd_unit)
    asked = ["systemctl", *([manager] if manager == "--user" else []), "show", "-p", "MainPID", "--value", name]
    shown = link.run(asked, deadline=deadline).text.strip()
    return RunningServer(
        run_id="",
        pid=int(shown) if shown.isdigit() else 0,
        start_ticks=0,
        run_dir="",
        log_path="",
        port=home.port,
        command_line=f"systemctl start {home.systemd_unit}",
        unit=home.systemd_unit,
        kind="home",
    )
