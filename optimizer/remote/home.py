"""The original server of a host: found, stopped, started again and proved.

Decides what counts as the original server (given, a systemd unit, or whoever listens on the port, read from /proc) and
when it may be touched. Stopping is done by `process.py`; the guard starts it when Ratchet cannot.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from optimizer.clock import Deadline
from optimizer.engines.base import LaunchPlan
from optimizer.errors import NeedsAttention, NotFound, PortTaken
from optimizer.remote import gpu, home_look, process, scripts, units
from optimizer.remote.base import HomeServer, HostLink, RunningServer, StopProof
from optimizer.remote.launcher import masked_command
from optimizer.spec import HomeEntry

POLL_S = 0.2
PROBE_TIMEOUT_S = 5.0
DECISIVE = re.compile(r"error|exception|failed|no such|not found|denied", re.IGNORECASE)


@dataclass(frozen=True)
class Restored:
    """What `restore` did."""

    server: RunningServer | None
    """None when the original server was serving all along and was not started by us."""
    already_serving: bool
    stopped: tuple[str, ...]
    """Run ids of leftovers that were stopped first."""
    elapsed_s: float


def from_entry(entry: HomeEntry, *, default_port: int) -> HomeServer:
    """Return the home server as the host's file gives it."""
    parts = urlsplit(entry.url or "")
    unit = entry.systemd_unit or units.container_of(entry.command)
    return HomeServer(
        argv=tuple(entry.command),
        env=dict(entry.env),
        cwd=entry.cwd,
        systemd_unit=unit,
        port=parts.port or default_port,
        health_path=parts.path if len(parts.path) > 1 else "/health",
        found="systemd" if unit else "given",
    )


def find(link: HostLink, port: int, deadline: Deadline, *, run_dir: str = "~/.ratchet") -> HomeServer:
    """Read the server that listens on `port`, so that it can be started again exactly as it is.

    Raises:
        NotFound: nothing listens on the port.
        PortTaken: it is a trial of ours, of another user, or in a container: it cannot be put back from /proc.
    """
    seen = home_look.look(link, port, deadline, run_dir=run_dir)
    if seen is None:
        raise NotFound(
            f"{link.name}: nothing listens on port {port}",
            remedy="start the original server first, or give it in the host's file under `home`, or leave it out",
        )
    if seen.kind == "trial":
        raise PortTaken(
            link.name,
            f"{link.name}: port {port} is held by a trial of an earlier study (run {seen.main.run_id})",
            remedy=f"`ratchet host restore {link.name}` stops it and puts the original server back",
        )
    unit = units.unit_of(seen.cgroup) if seen.systemd and not home_look.forwards(seen) else None
    if unit and not units.runs(link, unit, seen.main.session, deadline=deadline):
        unit = None
    if unit is None:
        home_look.check_reproducible(link, port, seen)
    return HomeServer(
        argv=seen.argv,
        env=seen.env,
        cwd=seen.cwd or None,
        user=seen.user if seen.main.uid != seen.self_uid else None,
        systemd_unit=unit,
        port=port,
        found="systemd" if unit else "proc",
        pid=seen.main.pid,
        start_ticks=seen.main.start_ticks,
        umask=seen.umask,
    )


def is_home(home: HomeServer, command: tuple[str, ...]) -> bool:
    """Say whether a command line is that of the home server."""
    return bool(home.argv) and home.argv == command


def stop(
    link: HostLink, home: HomeServer, *, run_dir: str, fence: int | None, deadline: Deadline,
    term_wait_s: float = process.TERM_WAIT_S,
) -> StopProof:  # fmt: skip
    """Stop the home server, started by us or not, and prove that it is gone.

    Raises:
        PortTaken: the server on the port is neither home nor ours; it was not touched.
        NeedsAttention, FenceRefused, HostBusy: as for `process.stop`.
    """
    for run in process.find_runs(link, run_dir=run_dir, deadline=deadline.sooner(process.COMMAND_S)):
        if run.kind == "home":
            return process.stop(link, run, run_dir=run_dir, fence=fence, deadline=deadline, term_wait_s=term_wait_s)
    began = time.monotonic()
    if home.systemd_unit:
        before = gpu.snapshot(link, deadline.sooner(gpu.SNAPSHOT_S))
        proof = units.stop(link, home, run_dir=run_dir, fence=fence, deadline=deadline)
        left = {pid for g in gpu.snapshot(link, deadline.sooner(gpu.SNAPSHOT_S)) for pid, _ in g.processes}
        gone = {pid for g in before for pid, _ in g.processes} - left
        gpu.wait_until_released(link, before, sorted(gone), deadline=deadline)
        return replace(proof, elapsed_s=time.monotonic() - began)
    seen = home_look.look(
        link, home.port, deadline.sooner(process.COMMAND_S), run_dir=run_dir, pid=home.pid, start=home.start_ticks
    )
    if seen is None:
        return StopProof((), killed=False, port_free=True, gpu_memory_back=True, elapsed_s=0.0)
    same = (seen.main.pid, seen.main.start_ticks) == (home.pid, home.start_ticks) or is_home(home, seen.argv)
    if not same:
        raise PortTaken(
            link.name,
            f"{link.name}: port {home.port} is held by {scripts.tell(seen.main)}, which is not the original server",
            remedy="stop it by hand, or name it as the original server in the host's file",
        )
    before = gpu.snapshot(link, deadline.sooner(gpu.SNAPSHOT_S))
    proof = process.stop_processes(
        link, [(seen.main.pid, seen.main.start_ticks)], run_dir=run_dir, fence=fence, port=home.port,
        deadline=deadline, term_wait_s=term_wait_s,
    )  # fmt: skip
    gpu.wait_until_released(link, before, proof.pids_signalled, deadline=deadline)
    return replace(proof, elapsed_s=time.monotonic() - began)


def plan_of(home: HomeServer) -> LaunchPlan:
    """Return home as a plan that `process.launch` can start."""
    return LaunchPlan(
        argv=home.argv, env=home.env, cwd=home.cwd, port=home.port, bind_host="", served_model="", expected={},
        secret_env=frozenset(),
    )  # fmt: skip


def start(
    link: HostLink, home: HomeServer, *, run_dir: str, fence: int | None, deadline: Deadline, run_id: str | None = None
) -> RunningServer:
    """Start home under its own environment, tracked as a run of kind `home`; one that runs already is returned.

    Raises:
        PortTaken, FenceRefused, HostBusy: as for `process.launch`.
        CommandFailed: systemd could not start the unit.
    """
    if home.systemd_unit:
        return units.start(link, home, run_dir=run_dir, fence=fence, deadline=deadline)
    for run in process.find_runs(link, run_dir=run_dir, deadline=deadline.sooner(process.COMMAND_S)):
        if _is_run_of(link, home, run, run_dir, deadline):
            return run
    return process.launch(
        link, plan_of(home), run_id=run_id or process.new_run_id(), run_dir=run_dir, fence=fence, deadline=deadline,
        kind="home", clean_env=home.found == "proc", user=home.user, umask=home.umask,
    )  # fmt: skip


def prove(
    link: HostLink, home: HomeServer, server: RunningServer | None = None, *, deadline: Deadline,
    probe: Callable[[str], bool] | None = None,
) -> float:  # fmt: skip
    """Wait until home answers; returns the seconds waited.

    `probe(base_url)` decides what an answer is; the default asks `health_path`. A started `server` must be the one
    that listens, unless its owner gave the command: a container's port is held by others than who started it.

    Raises:
        NeedsAttention: home died or does not answer before the deadline; carries the end of its log.
    """
    began = time.monotonic()
    tunnel = link.open_tunnel(home.port)
    try:
        while True:
            listening = bool(process.listeners(link, home.port, deadline.sooner(process.COMMAND_S)))
            if server is not None and not server.unit:
                look = process.status(link, server, log_offset=0, log_limit=0)
                ours = bool(set(look.pids) & set(look.listening_pids))
                listening = listening and (ours or home.found == "given")
                if not look.alive and not look.pids:
                    raise _not_back(link, home, server, f"it ended with status {look.exit_code}")
            if listening and (probe(tunnel.url) if probe else _answers(tunnel.url, home.health_path)):
                return time.monotonic() - began
            if deadline.left_s < POLL_S:
                raise _not_back(link, home, server, "it does not answer in time")
            time.sleep(POLL_S)
    finally:
        tunnel.close()


def _not_back(link: HostLink, home: HomeServer, server: RunningServer | None, why: str) -> NeedsAttention:
    tail = process.read_log(link, server, offset=-4000).decode("utf-8", "replace") if server else ""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    decisive = [line for line in lines if DECISIVE.search(line)] or lines
    last = " | ".join(decisive[-3:])
    who = "the winner does not serve" if home.found == "adopted" else "the original server is not back"
    return NeedsAttention(
        link.name,
        f"{link.name}: {who}: {why}{'; its log says: ' + last if last else ''}",
        remedy=f"look at its log on the host, then run `ratchet host restore {link.name}`",
    )


def _answers(base_url: str, path: str) -> bool:
    """Say whether the server answers; a server without this path (404) answers too, one that loads (503) does not."""
    parts = urlsplit(base_url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def restore(
    link: HostLink, home: HomeServer, *, run_dir: str, fence: int | None, deadline: Deadline,
    probe: Callable[[str], bool] | None = None,
) -> Restored:  # fmt: skip
    """Bring the host back: stop every trial of ours, start home unless it serves, prove that it answers.

    Works after the guard has acted too. `fence` None is for a person who takes the host back whoever had it last.

    Raises:
        NeedsAttention, PortTaken, FenceRefused, HostBusy: the host could not be brought back.
    """
    began = time.monotonic()
    stopped = _stop_leftovers(link, home, run_dir=run_dir, fence=fence, deadline=deadline)
    server: RunningServer | None = None
    already = False
    seen = _serving(link, home, run_dir, deadline)
    if seen is not None and (seen.kind == "home" or is_home(home, seen.argv) or _unit_serves(home, seen)):
        already = True
    else:
        server = start(link, home, run_dir=run_dir, fence=fence, deadline=deadline)
    prove(link, home, server, deadline=deadline, probe=probe)
    return Restored(server, already, stopped, time.monotonic() - began)


def _serving(link: HostLink, home: HomeServer, run_dir: str, deadline: Deadline) -> home_look.Look | None:
    try:
        return home_look.look(link, home.port, deadline.sooner(process.COMMAND_S), run_dir=run_dir)
    except PortTaken:
        if home.systemd_unit:  # a unit may run as a user whose processes we cannot see; starting it twice is harmless
            return None
        raise


def _unit_serves(home: HomeServer, seen: home_look.Look) -> bool:
    return home.systemd_unit is not None and units.unit_of(seen.cgroup) == home.systemd_unit


def _is_run_of(link: HostLink, home: HomeServer, run: RunningServer, run_dir: str, deadline: Deadline) -> bool:
    """Say whether a run of ours is this home; another one was put there by an earlier study (an adopted winner)."""
    if run.kind != "home":
        return False
    if run.command_line == masked_command(home.argv, home.env):
        return True
    seen = home_look.look(
        link, home.port, deadline.sooner(process.COMMAND_S), run_dir=run_dir, pid=run.pid, start=run.start_ticks
    )
    return home.found == "proc" and seen is not None and (seen.argv, seen.env) == (home.argv, home.env)


def _stop_leftovers(
    link: HostLink, home: HomeServer, *, run_dir: str, fence: int | None, deadline: Deadline
) -> tuple[str, ...]:
    stopped = []
    for run in process.find_runs(link, run_dir=run_dir, deadline=deadline.sooner(process.COMMAND_S)):
        if not _is_run_of(link, home, run, run_dir, deadline):
            process.stop(link, run, run_dir=run_dir, fence=fence, deadline=deadline, after_guard=True)
            stopped.append(run.run_id)
    return tuple(stopped)


def stop_trials(link: HostLink, *, run_dir: str, fence: int | None, deadline: Deadline) -> tuple[str, ...]:
    """Stop every trial of ours that is alive; returns their run ids. Raises as `process.stop`."""
    stopped = []
    for run in process.find_runs(link, run_dir=run_dir, deadline=deadline.sooner(process.COMMAND_S)):
        if run.kind == "trial":
            process.stop(link, run, run_dir=run_dir, fence=fence, deadline=deadline, after_guard=True)
            stopped.append(run.run_id)
    return tuple(stopped)
