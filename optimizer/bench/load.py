"""The load client as the rest of the program sees it: a child process that runs phases of requests.

Decides the life of that process (started once per measurement, ended within a second of a cancel) and the form of what
it tells. The child's loop is `client.py`; which requests are sent is `plan.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from optimizer.bench.base import RequestSample, Workload
from optimizer.bench.plan import PlannedRequest, arrivals
from optimizer.clock import Deadline
from optimizer.errors import BenchmarkFailed, RequestsFailed, Stopped

POLL_S = 0.1
"""How often a cancel is looked for."""
START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 0.5


@dataclass(frozen=True)
class PhaseStats:
    """How the client itself fared in one phase. Times in seconds from the start of the measurement."""

    start_s: float
    end_s: float
    aborted: bool
    loop_cpu_s: float
    """CPU seconds while requests were running; reading the answers afterwards is in `cpu_s` only."""
    cpu_s: float
    lag_p99_ms: float
    lag_max_ms: float
    busy_share: float
    peak_streams: int


class LoadClient:
    """One child process. Use as a context manager; the process never outlives it."""

    def __init__(self, url: str, *, headers: dict[str, str] | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = headers or {}
        self.origin_s = time.perf_counter()
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def __enter__(self) -> Self:
        """Start the process and wait until it speaks."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "optimizer.bench.client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C in the terminal is for the parent, which ends the child in order
        )
        try:
            self._wait_for("hello", Deadline.after(START_TIMEOUT_S), lambda: False, lambda event: None)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, whatever happened."""
        self.close()

    def close(self) -> None:
        """End the process: by the end of its input, else by force. Harmless when repeated."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def run(
        self,
        planned: Sequence[PlannedRequest],
        workload: Workload,
        concurrency: int,
        *,
        deadline: Deadline,
        cancelled: Callable[[], bool] | None = None,
        on_sample: Callable[[RequestSample], bool] | None = None,
    ) -> tuple[list[RequestSample], PhaseStats]:
        """Send requests at `concurrency` and return what became of each, in order of sending.

        `on_sample` sees each request as it is told and may return True to end the phase early.

        Raises:
            Stopped: `cancelled` said so; the client is gone within a second.
            RequestsFailed: the deadline passed.
            BenchmarkFailed: the client died.
        """
        self._send(
            {
                "cmd": "phase",
                "url": self._url,
                "api": workload.api,
                "requests": [{"id": i, "path": r.path, "body": r.body} for i, r in enumerate(planned)],
                "concurrency": concurrency,
                "arrivals_s": arrivals(workload, len(planned)),
                "waves": workload.waves,
                "request_timeout_s": workload.request_timeout_s,
                "stall_timeout_s": workload.stall_timeout_s,
                "headers": self._headers,
                "origin_s": self.origin_s,
            }
        )
        told: dict[int, RequestSample] = {}

        def take(event: dict[str, Any]) -> None:
            sample = _sample(event, planned[event["id"]], concurrency)
            told[event["id"]] = sample
            if on_sample is not None and on_sample(sample):
                self._send({"cmd": "abort"})

        done = self._wait_for("phase", deadline, cancelled or (lambda: False), take)
        if "error" in done:
            raise BenchmarkFailed(f"the load client cannot reach {self._url}: {done['error']}", remedy="check the URL")
        done.pop("event")
        return [told[i] for i in sorted(told)], PhaseStats(**done)

    def _send(self, command: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(command) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._died() from error

    def _wait_for(
        self,
        kind: str,
        deadline: Deadline,
        cancelled: Callable[[], bool],
        on_request: Callable[[dict[str, Any]], None],
    ) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                for event in self._events():
                    if event["event"] == kind:
                        return event
                    on_request(event)
                if cancelled():
                    self.close()
                    raise Stopped("the measurement was cancelled")
                if deadline.passed:
                    self.close()
                    raise RequestsFailed(
                        "the measurement did not end before its deadline",
                        remedy="raise budget.measure_timeout_s (--timeout of `ratchet bench`), or ask for less",
                    )
                if selector.select(min(POLL_S, deadline.left_s)):
                    data = os.read(descriptor, 1 << 20)
                    if not data:
                        raise self._died()
                    self._buffer += data

    def _events(self) -> list[dict[str, Any]]:
        lines = self._buffer.split(b"\n")
        self._buffer = lines.pop()
        return [json.loads(line) for line in lines]

    def _died(self) -> BenchmarkFailed:
        code = None
        if self._process is not None:
            try:
                code = self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                code = None
        self.close()
        return BenchmarkFailed(f"the load client died (exit status {code})", remedy="see its message on stderr")


def _sample(event: dict[str, Any], planned: PlannedRequest, concurrency: int) -> RequestSample:
    times, counts = tuple(event["times_s"]), tuple(event["counts"])
    shown = sum(counts)
    said = event["output_tokens"]
    return RequestSample(
        prompt=planned.prompt.name,
        kind=planned.prompt.kind,
        concurrency=concurrency,
        repeat=planned.repeat,
        start_s=event["start_s"],
        first_token_s=times[0] if times else None,
        end_s=event["end_s"],
        prompt_tokens=event["prompt_tokens"],
        output_tokens=shown if said is None else said,
        stream_tokens=shown,
        token_times_s=times,
        chunk_tokens=counts,
        finish_reason=event["finish_reason"],
        error=event["error"],
        text=event["text"],
        engine_timings=event["engine_timings"],
        usage_given=said is not None,
        tokens_exact=event["exact"],
        cached_tokens=event["cached_tokens"],
    )
