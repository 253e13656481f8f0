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
    manager = "--user" if unit.startswith(USER_PREFIX) else "--system"
    done = scripts.call(link, "unit_session", manager, unit.removeprefix(USER_PREFIX), deadline=deadline)
    return done.text.strip() in {"", str(session)}


def _systemctl(unit: str, verb: str, *options: str) -> list[str]:
    if unit.startswith(USER_PREFIX):
        return ["systemctl", "--user", *options, verb, "--", unit.removeprefix(USER_PREFIX)]
    return ["systemctl", *options, verb, "--", unit]


def _call(link: HostLink, unit: str, verb: str, deadline: Deadline) -> None:
    argv = _systemctl(unit, verb)
    done = link.run(argv, deadline=deadline)
    if done.exit_code != 0 and not unit.startswith(USER_PREFIX):
        done = link.run(["sudo", "-n", *argv], deadline=deadline)
    if done.exit_code != 0:
        raise CommandFailed(
            link.name,
            f"{link.name}: systemctl {verb} {unit} failed: {done.error_text.strip()[-300:]}",
            exit_code=done.exit_code,
            stderr=done.error_text,
            remedy="let the login user manage this unit (a polkit rule or sudo without a password), or log in as root",
        )


def stop(link: HostLink, home: HomeServer, *, deadline: Deadline) -> StopProof:
    """Stop the unit and wait until its port is free. Raises CommandFailed, NeedsAttention."""
    began = time.monotonic()
    assert home.systemd_unit
    _call(link, home.systemd_unit, "stop", deadline)
    while process.listeners(link, home.port, deadline.sooner(process.COMMAND_S)):
        if deadline.left_s < STOP_POLL_S:
            raise NeedsAttention(
                link.name,
                f"{link.name}: {home.systemd_unit} is stopped but port {home.port} is still held",
                remedy="look who listens there; another unit or a process outside the unit serves it",
            )
        time.sleep(STOP_POLL_S)
    return StopProof((), killed=False, port_free=True, gpu_memory_back=True, elapsed_s=time.monotonic() - began)


def start(link: HostLink, home: HomeServer, *, deadline: Deadline) -> RunningServer:
    """Start the unit. Raises CommandFailed."""
    assert home.systemd_unit
    _call(link, home.systemd_unit, "start", deadline)
    shown = link.run(_systemctl(home.systemd_unit, "show", "-p", "MainPID", "--value"), deadline=deadline).text.strip()
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
