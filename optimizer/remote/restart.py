"""Replacing one server by another: what a trial does to a host, as one verb with its times.

Decides the order (leftovers, home, room, launch) and looks at a starting server (`Watch`): what is new in its log,
whether it still moves. Leaves readiness, which needs the engine, to `optimizer.readiness`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from optimizer.clock import Deadline
from optimizer.engines.base import LaunchPlan
from optimizer.errors import PortTaken
from optimizer.remote import home as home_verbs
from optimizer.remote import process
from optimizer.remote.base import HomeServer, HostLink, RunningServer, ServerStatus, StopProof


@dataclass(frozen=True)
class Restarted:
    """A server that was started, and what it replaced."""

    server: RunningServer
    stopped: tuple[StopProof, ...]
    warnings: tuple[str, ...]
    timings: dict[str, float]
    """Seconds: stop_s, preflight_s, launch_s."""


def replace_server(
    link: HostLink,
    plan: LaunchPlan,
    *,
    run_id: str,
    run_dir: str,
    fence: int,
    deadline: Deadline,
    home: HomeServer | None = None,
    takeover: bool = False,
) -> Restarted:
    """Stop whatever of ours runs on the host (with `takeover` the original server too) and launch `plan`.

    A run that is alive under this very `run_id` is the answer already: it was started before a connection broke.

    Raises:
        PortTaken: somebody else's server holds the port; it was not touched.
        NeedsAttention: a stop could not be proved; nothing was started.
        FenceRefused, HostBusy, and the faults of a connection.
    """
    stopped: list[StopProof] = []
    began = time.monotonic()
    for run in process.find_runs(link, run_dir=run_dir, deadline=deadline.sooner(process.COMMAND_S)):
        if run.run_id == run_id:
            return Restarted(run, (), (), {"stop_s": 0.0, "preflight_s": 0.0, "launch_s": 0.0})
        if run.kind == "home" and not takeover:
            raise PortTaken(
                link.name,
                f"{link.name}: the original server is serving",
                remedy="set `takeover: true` in the host's file if it may be stopped and put back",
            )
        stopped.append(process.stop(link, run, run_dir=run_dir, fence=fence, deadline=deadline))
    if takeover and home is not None and not stopped:
        stopped.append(home_verbs.stop(link, home, run_dir=run_dir, fence=fence, deadline=deadline))
    after_stop = time.monotonic()
    warnings = process.preflight(link, plan, run_dir=run_dir, deadline=deadline.sooner(process.COMMAND_S))
    after_preflight = time.monotonic()
    server = process.launch(link, plan, run_id=run_id, run_dir=run_dir, fence=fence, deadline=deadline)
    timings = {
        "stop_s": after_stop - began,
        "preflight_s": after_preflight - after_stop,
        "launch_s": time.monotonic() - after_preflight,
    }
    return Restarted(server, tuple(stopped), tuple(warnings), timings)


def owns_port(status: ServerStatus) -> bool:
    """Say whether the port is listened on, and by nobody but the server's own processes."""
    return bool(status.listening_pids) and set(status.listening_pids) <= set(status.pids)


@dataclass
class Watch:
    """Looks at one starting server again and again, one remote command each; keeps the log's offset and its pulse."""

    link: HostLink
    server: RunningServer
    monotonic: Callable[[], float] = time.monotonic
    offset: int = 0
    log: bytearray = field(default_factory=bytearray)
    """Everything read so far, cut to its last `keep` bytes."""
    keep: int = 4_000_000
    _pulse: tuple[int, int] = (-1, -1)
    _moved_at: float = 0.0

    def look(self, *, deadline: Deadline) -> ServerStatus:
        """Look once; new log bytes are in `log_chunk` and appended to `log`. Raises the faults of a connection."""
        status = process.status(self.link, self.server, log_offset=self.offset, deadline=deadline)
        self.offset += len(status.log_chunk)
        self.log.extend(status.log_chunk)
        del self.log[: -self.keep]
        pulse = (status.log_size, status.cpu_ticks // STILL_TICKS)
        if pulse != self._pulse:
            self._pulse = pulse
            self._moved_at = self.monotonic()
        return status

    @property
    def still_s(self) -> float:
        """Seconds since the server last wrote to its log or used CPU time worth mentioning."""
        return self.monotonic() - self._moved_at if self._moved_at else 0.0


STILL_TICKS = 50
"""Half a second of CPU time: sleeping workers that wake up now and then do not count as movement at once."""
