"""The load client: one process, one thread, one loop over non-blocking sockets. Run as a module, driven by JSON lines.

Decides when requests go out and notes when every piece arrives; nothing is parsed while it is being timed, except on
one or two streams, where each finished request is told at once. What is asked comes complete from `load.py`.

Commands on stdin: `{"cmd": "phase", ...}` (fields of `Phase`), `{"cmd": "abort"}`; the end of stdin ends the process.
Answers on stdout: `{"event": "request", ...}` for each request, then `{"event": "phase", ...}`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import selectors
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from optimizer.bench.connection import Connections, Stream
from optimizer.bench.dialects import Answer
from optimizer.bench.stream import Piece, read_answer

TICK_S = 0.02
"""How often time limits are looked at; also the interval by which late wake-ups of this process are noticed."""
TELL_AT_ONCE = 2
"""Up to that many streams a request is read as soon as it ends; above, when the phase is over."""
CONNECT_TIMEOUT_S = 15.0
PRIORITY = -10
"""Nice value that the client asks for: it works little, and must not wait for those who work much."""


@dataclass(frozen=True)
class Phase:
    """One batch of requests. `arrivals_s` are seconds from the start (open loop), None for a closed loop."""

    url: str
    api: str
    requests: list[dict[str, Any]]
    """Each has `id`, `path` and `body` (JSON text)."""
    concurrency: int
    arrivals_s: list[float] | None = None
    waves: int = 1
    """More than one only in a closed loop."""
    request_timeout_s: float = 300.0
    stall_timeout_s: float = 60.0
    headers: dict[str, str] = field(default_factory=dict)
    origin_s: float = 0.0
    """Monotonic time that counts as zero in what is told."""


class Lag:
    """How late this process was: time spent on one round of events, wake-ups after the time asked for, and the wait of
    what had arrived."""

    def __init__(self) -> None:
        self.rounds: list[float] = []
        self.late: list[float] = []
        self.busy_s = 0.0

    def report(self, wall_s: float) -> dict[str, float]:
        """Return the 99th percentile and maximum in milliseconds and the share of time that was busy."""
        both = sorted(self.rounds + self.late) or [0.0]
        return {
            "lag_p99_ms": both[min(len(both) - 1, int(len(both) * 0.99))] * 1e3,
            "lag_max_ms": both[-1] * 1e3,
            "busy_share": self.busy_s / wall_s if wall_s > 0 else 0.0,
        }


class PhaseRunner:
    """Runs one phase to its end or to an abort."""

    def __init__(self, phase: Phase, control: Control) -> None:
        self.phase = phase
        self.control = control
        self.selector = control.selector
        self.connections = Connections(phase.url, phase.headers, control.selector, self._finish)
        self.waiting: deque[dict[str, Any]] = deque()
        self.free: deque[Stream] = deque()
        self.streams: list[Stream] = []
        self.running = 0
        self.finished: list[tuple[dict[str, Any], float, float, list[Piece], str | None, bool]] = []
        self.at_once = phase.arrivals_s is None and phase.concurrency <= TELL_AT_ONCE
        self.lag = Lag()
        self.peak = 0

    def run(self) -> dict[str, Any]:
        """Send all requests, wave by wave; return what the phase was like."""
        begun, cpu = time.perf_counter(), time.process_time()
        requests, waves = self.phase.requests, max(1, min(self.phase.waves, len(self.phase.requests)))
        size = -(-len(requests) // waves) if requests else 0
        for wave in range(waves):
            if self.control.aborted:
                break
            self.waiting = deque(requests[wave * size : (wave + 1) * size])
            self._drain(begun)
        self.lag.late += self.connections.late_s
        ended, cpu_s = time.perf_counter(), time.process_time() - cpu
        for stream in self.streams:
            self.connections.close(stream)
        for item in self.finished:
            self._tell(*item)
        return {
            "event": "phase",
            "aborted": self.control.aborted,
            "start_s": begun - self.phase.origin_s,
            "end_s": ended - self.phase.origin_s,
            "loop_cpu_s": cpu_s,
            "cpu_s": time.process_time() - cpu,
            "peak_streams": self.peak,
            **self.lag.report(ended - begun),
        }

    def _drain(self, begun: float) -> None:
        while len(self.streams) < min(self.phase.concurrency, len(self.waiting)):
            self.streams.append(Stream())
        self.free = deque(self.streams)
        while (self.waiting or self.running) and not self.control.aborted:
            timeout = min(TICK_S, self._release(begun))
            asleep = time.perf_counter()
            events = self.selector.select(timeout)
            awake = time.perf_counter()
            if not events and awake - asleep > timeout:
                self.lag.late.append(awake - asleep - timeout)
            for key, _ in events:
                if key.data is None:
                    self.control.read()
                elif key.data.sock is key.fileobj:
                    self.connections.advance(key.data)
            self._look_at_limits(awake)
            spent = time.perf_counter() - awake
            self.lag.busy_s += spent
            if events:
                self.lag.rounds.append(spent)

    def _release(self, begun: float) -> float:
        """Start what can start: closed loop, a request for every free stream; open loop, every request that is due.

        Returns the seconds until there is more to start.
        """
        arrivals = self.phase.arrivals_s
        while self.waiting:
            due = None
            if arrivals is not None:
                due = begun + arrivals[len(self.phase.requests) - len(self.waiting)]
                if (wait := due - time.perf_counter()) > 0:
                    return wait
                if not self.free:
                    self.streams.append(Stream())
                    self.free.append(self.streams[-1])
            if not self.free:
                break
            self._next(self.free.popleft(), due)
        return TICK_S

    def _next(self, stream: Stream, due: float | None) -> None:
        request = self.waiting.popleft()
        self.running += 1
        self.peak = max(self.peak, self.running)
        stream.request = request
        self.connections.begin(stream, due)

    def _finish(self, stream: Stream, error: str | None) -> None:
        request = stream.request
        assert request is not None
        item = (request, stream.started, time.perf_counter(), stream.pieces, error, stream.closed)
        stream.request, stream.pieces = None, []
        self.running -= 1
        if stream.state != "closed":
            stream.state = "idle"
            if b"connection: close" in item[3][0][1][:2048].lower():
                self.connections.close(stream)
        if self.at_once:
            self._tell(*item)
        else:
            self.finished.append(item)
        self.free.append(stream)

    def _look_at_limits(self, now: float) -> None:
        if now - self.control.looked < TICK_S:
            return
        self.control.looked = now
        for stream in list(self.streams):
            if stream.request is None:
                continue
            if now - stream.started > self.phase.request_timeout_s:
                self.connections.fail(stream, f"timeout: not finished after {self.phase.request_timeout_s:g} s")
            elif stream.state in ("connecting", "handshake") and now - stream.started > CONNECT_TIMEOUT_S:
                self.connections.fail(stream, f"connect: no connection after {CONNECT_TIMEOUT_S:g} s")
            elif now - stream.data_at > self.phase.stall_timeout_s:
                self.connections.fail(stream, f"stalled: silent for {self.phase.stall_timeout_s:g} s")

    def _tell(
        self, request: dict[str, Any], start: float, end: float, pieces: list[Piece], error: str | None, closed: bool
    ) -> None:
        answer = read_answer(pieces, self.phase.api, closed=closed) if pieces or error is None else Answer()
        origin = self.phase.origin_s
        self.control.write(
            {
                "event": "request",
                "id": request["id"],
                "start_s": round(start - origin, 6),
                "end_s": round((pieces[-1][0] if pieces and error is None else end) - origin, 6),
                "times_s": [round(t - origin, 6) for t in answer.times],
                "counts": answer.counts,
                "exact": answer.exact,
                "text": "".join(answer.text),
                "finish_reason": answer.finish_reason,
                "prompt_tokens": answer.prompt_tokens,
                "output_tokens": answer.output_tokens,
                "cached_tokens": answer.cached_tokens,
                "engine_timings": answer.engine_timings,
                "error": error or answer.error,
            }
        )


class Control:
    """The pipe to the parent: commands in, events out."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ, None)
        self.buffer = b""
        self.commands: deque[dict[str, Any]] = deque()
        self.aborted = False
        self.ended = False
        self.looked = 0.0

    def read(self) -> None:
        """Take in what the parent wrote; the end of the pipe aborts."""
        data = os.read(0, 1 << 20)
        if not data:
            self.ended = self.aborted = True
            self.selector.unregister(0)
            return
        lines = (self.buffer + data).split(b"\n")
        self.buffer = lines.pop()
        for line in lines:
            command = json.loads(line)
            if command["cmd"] == "abort":
                self.aborted = True
            else:
                self.commands.append(command)

    def write(self, event: dict[str, Any]) -> None:
        """Tell the parent one thing."""
        data = (json.dumps(event, ensure_ascii=True) + "\n").encode()
        while data:
            data = data[os.write(1, data) :]


def main() -> None:
    """Serve phases until stdin ends."""
    with contextlib.suppress(OSError):  # allowed to few; on a busy machine it keeps the time stamps true
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    gc.disable()  # a collection would be a pause in the middle of the timing; nothing here makes cycles
    control = Control()
    control.write({"event": "hello", "monotonic_s": time.perf_counter()})
    while not control.ended:
        while not control.commands and not control.ended:
            control.selector.select()
            control.read()
        if control.commands:
            command = control.commands.popleft()
            command.pop("cmd")
            control.aborted = False
            try:
                control.write(PhaseRunner(Phase(**command), control).run())
            except OSError as error:
                control.write({"event": "phase", "aborted": True, "error": f"{error.strerror or error}"})


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(1)
