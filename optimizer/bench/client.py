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
import selectors
import socket
import ssl
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from optimizer.bench.stream import Answer, Piece, is_complete, read_answer

READ_SIZE = 1 << 16
TICK_S = 0.02
"""How often time limits are looked at; also the interval by which late wake-ups of this process are noticed."""
TELL_AT_ONCE = 2
"""Up to that many streams a request is read as soon as it ends; above, when the phase is over."""
CONNECT_TIMEOUT_S = 15.0
FINAL_CHUNK = b"0\r\n\r\n"


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
    request_timeout_s: float = 300.0
    stall_timeout_s: float = 60.0
    headers: dict[str, str] = field(default_factory=dict)
    origin_s: float = 0.0
    """Monotonic time that counts as zero in what is told."""


class Stream:
    """One connection and the request on it, if any."""

    __slots__ = ("closed", "data_at", "fresh", "head", "pieces", "request", "sent", "sock", "started", "state", "tail")

    def __init__(self) -> None:
        self.sock: Any = None
        self.state = "closed"  # closed | connecting | handshake | idle | sending | reading
        self.request: dict[str, Any] | None = None
        self.pieces: list[Piece] = []
        self.tail = b""
        self.started = 0.0
        self.data_at = 0.0
        self.sent = 0
        self.head = b""
        self.fresh = True
        self.closed = False


class Lag:
    """How late this process was: time spent on one round of events, and wake-ups after the time asked for."""

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
        parts = urlsplit(phase.url)
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.prefix = parts.path.rstrip("/")
        self.authority = parts.netloc.rpartition("@")[2]
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        self.family: int = found[0]
        self.address: Any = found[4]
        self.selector = control.selector
        self.waiting: deque[dict[str, Any]] = deque()
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
        ended, cpu_s = time.perf_counter(), time.process_time() - cpu
        for stream in self.streams:
            self._close(stream)
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
        if self.phase.arrivals_s is None:
            while len(self.streams) < min(self.phase.concurrency, len(self.waiting)):
                self.streams.append(Stream())
            for stream in self.streams:
                self._next(stream)
        while (self.waiting or self.running) and not self.control.aborted:
            timeout = TICK_S
            if self.phase.arrivals_s is not None and self.waiting:
                timeout = min(timeout, self._release(begun))
            asleep = time.perf_counter()
            events = self.selector.select(timeout)
            awake = time.perf_counter()
            if not events and awake - asleep > timeout:
                self.lag.late.append(awake - asleep - timeout)
            for key, mask in events:
                if key.data is None:
                    self.control.read()
                elif key.data.sock is key.fileobj:
                    self._advance(key.data, mask)
            self._look_at_limits(awake)
            spent = time.perf_counter() - awake
            self.lag.busy_s += spent
            if events:
                self.lag.rounds.append(spent)

    def _release(self, begun: float) -> float:
        """Start every request whose time has come (open loop); return the seconds until the next."""
        arrivals = self.phase.arrivals_s or []
        while self.waiting:
            due = begun + arrivals[len(self.phase.requests) - len(self.waiting)]
            wait = due - time.perf_counter()
            if wait > 0:
                return wait
            stream = next((s for s in self.streams if s.request is None), None)
            if stream is None:
                stream = Stream()
                self.streams.append(stream)
            self._next(stream)
        return TICK_S

    def _next(self, stream: Stream) -> None:
        if not self.waiting:
            return
        request = self.waiting.popleft()
        self.running += 1
        self.peak = max(self.peak, self.running)
        stream.request = request
        self._begin(stream)

    def _begin(self, stream: Stream) -> None:
        assert stream.request is not None
        body = stream.request["body"].encode()
        extra = "".join(f"{k}: {v}\r\n" for k, v in self.phase.headers.items())
        stream.head = (
            f"POST {self.prefix}{stream.request['path']} HTTP/1.1\r\nHost: {self.authority}\r\n"
            f"Content-Type: application/json\r\nAccept: text/event-stream\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        stream.pieces, stream.tail, stream.sent, stream.closed = [], b"", 0, False
        stream.started = stream.data_at = time.perf_counter()
        if stream.state == "idle":
            stream.fresh = False
            self._send(stream)
        else:
            stream.fresh = True
            self._connect(stream)

    def _connect(self, stream: Stream) -> None:
        sock = socket.socket(self.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sock, stream.state = sock, "connecting"
        self.selector.register(sock, selectors.EVENT_WRITE, stream)
        try:
            sock.connect(self.address)
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(stream, f"connect: {error.strerror or error}")

    def _advance(self, stream: Stream, mask: int) -> None:
        state = stream.state
        if state == "reading":
            self._read(stream)
        elif state == "sending":
            self._send(stream)
        elif state == "connecting":
            self._connected(stream)
        elif state == "handshake":
            self._handshake(stream)
        elif state == "idle":
            self._close(stream)  # the server ended a connection nobody uses, or spoke out of turn

    def _connected(self, stream: Stream) -> None:
        code = stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._fail(stream, f"connect: {os.strerror(code)}")
            return
        if self.tls is None:
            self._ready(stream)
            return
        self.selector.unregister(stream.sock)
        stream.sock = self.tls.wrap_socket(stream.sock, server_hostname=self.host, do_handshake_on_connect=False)
        self.selector.register(stream.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, stream)
        stream.state = "handshake"
        self._handshake(stream)

    def _handshake(self, stream: Stream) -> None:
        try:
            stream.sock.do_handshake()
        except ssl.SSLWantReadError:
            self.selector.modify(stream.sock, selectors.EVENT_READ, stream)
        except ssl.SSLWantWriteError:
            self.selector.modify(stream.sock, selectors.EVENT_WRITE, stream)
        except OSError as error:
            self._fail(stream, f"tls: {error}")
        else:
            self._ready(stream)

    def _ready(self, stream: Stream) -> None:
        """The connection is open: the request's time begins here (in an open loop, when it was due)."""
        if self.phase.arrivals_s is None:
            stream.started = stream.data_at = time.perf_counter()
        self._send(stream)

    def _send(self, stream: Stream) -> None:
        try:
            stream.sent += stream.sock.send(stream.head[stream.sent :])
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            self._broken(stream, f"dropped: {error.strerror or error}")
            return
        done = stream.sent >= len(stream.head)
        stream.state = "reading" if done else "sending"
        self.selector.modify(stream.sock, selectors.EVENT_READ if done else selectors.EVENT_WRITE, stream)

    def _read(self, stream: Stream) -> None:
        try:
            data = stream.sock.recv(READ_SIZE)
            while self.tls is not None and stream.sock.pending():
                data += stream.sock.recv(READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self._broken(stream, f"dropped: {error.strerror or error}")
            return
        now = time.perf_counter()
        if not data:
            stream.closed = True
            self._broken(stream, None)
            return
        stream.pieces.append((now, data))
        stream.data_at = now
        stream.tail = data[-5:] if len(data) >= 5 else (stream.tail + data)[-5:]
        # A chunked answer ends with its final chunk; one with a length is short (an error) and read as it comes.
        if (stream.tail == FINAL_CHUNK or self._has_length(stream)) and is_complete(stream.pieces):
            self._finish(stream, None)

    @staticmethod
    def _has_length(stream: Stream) -> bool:
        head = stream.pieces[0][1][:4096].lower()
        return b"\r\ncontent-length:" in head.split(b"\r\n\r\n", 1)[0]

    def _broken(self, stream: Stream, error: str | None) -> None:
        """The connection ended. A reused one that never answered was closed while idle: try once more, afresh."""
        if not stream.pieces and not stream.fresh:
            self._close(stream)
            self._begin(stream)
            return
        self._close(stream)
        self._finish(stream, error)

    def _fail(self, stream: Stream, error: str) -> None:
        self._close(stream)
        self._finish(stream, error)

    def _finish(self, stream: Stream, error: str | None) -> None:
        request = stream.request
        assert request is not None
        item = (request, stream.started, time.perf_counter(), stream.pieces, error, stream.closed)
        stream.request, stream.pieces = None, []
        self.running -= 1
        if stream.state != "closed":
            stream.state = "idle"
            if b"connection: close" in item[3][0][1][:2048].lower():
                self._close(stream)
        if self.at_once:
            self._tell(*item)
        else:
            self.finished.append(item)
        if self.phase.arrivals_s is None and not self.control.aborted:
            self._next(stream)

    def _close(self, stream: Stream) -> None:
        if stream.sock is not None:
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(stream.sock)
            stream.sock.close()
        stream.sock, stream.state = None, "closed"

    def _look_at_limits(self, now: float) -> None:
        if now - self.control.looked < TICK_S:
            return
        self.control.looked = now
        for stream in list(self.streams):
            if stream.request is None:
                continue
            if now - stream.started > self.phase.request_timeout_s:
                self._fail(stream, f"timeout: not finished after {self.phase.request_timeout_s:g} s")
            elif stream.state in ("connecting", "handshake") and now - stream.started > CONNECT_TIMEOUT_S:
                self._fail(stream, f"connect: no connection after {CONNECT_TIMEOUT_S:g} s")
            elif now - stream.data_at > self.phase.stall_timeout_s:
                self._fail(stream, f"stalled: silent for {self.phase.stall_timeout_s:g} s")

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
