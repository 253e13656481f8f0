"""Runs of the load client, and of others, against the scripted server; CPU and truth of each."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.client.others import MODEL, Seen
from optimizer.bench.base import RequestSample
from optimizer.bench.load import LoadClient, PhaseStats
from optimizer.bench.plan import level_requests
from optimizer.bench.workload import from_spec
from optimizer.clock import Deadline

PR_SET_CHILD_SUBREAPER = 36
ROOT = Path(__file__).parents[2]


@contextmanager
def scripted_server(script: str) -> Iterator[str]:
    """Start the scripted server as a process of its own; yields its URL."""
    command = [sys.executable, "-m", "benchmarks.client.scripted_server", "--script", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def truth_of(url: str) -> list[dict[str, Any]]:
    """Return (and forget) what the server wrote when, in the order in which requests came."""
    with urllib.request.urlopen(f"{url}/truth", timeout=30) as answer:
        return sorted(json.loads(answer.read()), key=lambda t: t["received"])


@dataclass(frozen=True)
class OurRun:
    """One run of the load client; `origin_s` is the monotonic time of its zero."""

    samples: list[RequestSample]
    stats: PhaseStats
    origin_s: float


def ours(url: str, streams: int, requests: int, tokens: int) -> OurRun:
    """Send requests with the load client."""
    workload = from_spec({"max_tokens": tokens, "requests_per_level": requests, "concurrency": [streams]})
    with LoadClient(url) as client:
        planned = level_requests(workload, streams, engine="llamacpp", model=MODEL)
        samples, stats = client.run(planned, workload, streams, deadline=Deadline.after(600))
        return OurRun(samples, stats, client.origin_s)


@dataclass(frozen=True)
class Errors:
    """How far measured times are from the server's, over the requests of one run."""

    rate_p50: float
    """Median of |measured / true decode speed - 1|."""
    rate_p99: float
    first_p50_ms: float
    first_p99_ms: float
    token_p99_ms: float
    """How late single tokens were noted after they were written."""


def errors_of(run: OurRun, truth: Sequence[dict[str, Any]]) -> Errors:
    """Compare samples with the truth; both clocks are the machine's monotonic one."""
    rates, firsts, tokens = [], [], []
    for sample, true in zip(sorted(run.samples, key=lambda s: s.start_s), truth, strict=True):
        sent = true["sent"]
        speed = (len(sent) - 1) / (sent[-1] - sent[0])
        rates.append(abs(sample.decode_tok_s / speed - 1))
        firsts.append(abs((sample.first_token_s or 0) - sample.start_s - (sent[0] - true["received"])) * 1e3)
        tokens += [(t + run.origin_s - s) * 1e3 for t, s in zip(sample.token_times_s, sent, strict=True)]
    return Errors(_at(rates, 0.5), _at(rates, 0.99), _at(firsts, 0.5), _at(firsts, 0.99), _at(tokens, 0.99))


def distribution_errors(seen: Sequence[Seen], truth: Sequence[dict[str, Any]]) -> tuple[float, float, float]:
    """Compare what a client reports with the truth, both sorted: reports do not name the requests as the server does.

    Returns the median and the 99th percentile of the relative error of a stream's speed, and the median error of the
    time to the first token in ms.
    """
    speeds = sorted((len(t["sent"]) - 1) / (t["sent"][-1] - t["sent"][0]) for t in truth)
    firsts = sorted(t["sent"][0] - t["received"] for t in truth)
    rates = [abs(s / t - 1) for s, t in zip(sorted(s.tok_s for s in seen), speeds, strict=True)]
    late = [abs(s - t) * 1e3 for s, t in zip(sorted(s.first_s for s in seen), firsts, strict=True)]
    return _at(rates, 0.5), _at(rates, 0.99), _at(late, 0.5)


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one run of a command, children included, and whether it succeeded."""

    cpu_s: float
    wall_s: float
    ok: bool
    said: str


def cost_of(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float = 900) -> Cost:
    """Run a command and return what it cost, with every process that it started."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # workers that outlive their parent are counted as well
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = {**os.environ, "NO_COLOR": "1", **env}
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Cost(0.0, time.monotonic() - begun, False, str(error)[-300:])
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu_s, time.monotonic() - begun, done.returncode == 0, (done.stdout + done.stderr)[-600:])
