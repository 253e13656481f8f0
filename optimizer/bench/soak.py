"""Holds a finalist under load for a while: a short benchmark does not show what breaks after minutes.

Decides what a finalist must survive before it may be adopted. It loads at the highest level of the workload, in waves
that drain, since servers also crash while a batch shrinks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optimizer.bench.base import MeasuredEngine, RequestSample, Workload
from optimizer.bench.derive import blocks, error_counts, mean_speed
from optimizer.bench.load import LoadClient
from optimizer.bench.plan import level_requests
from optimizer.clock import Deadline
from optimizer.errors import BenchmarkFailed

WAVES = 2
SLOWER_SHARE = 0.10
"""A loss of speed from the first to the last third of the soak that is worth a warning."""


@dataclass(frozen=True)
class SoakResult:
    """How a finalist stood the soak. `ok` is False when any request failed."""

    ok: bool
    requests: int
    errors: dict[str, int]
    duration_s: float
    first_tok_s: float
    last_tok_s: float
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def soak(
    url: str,
    *,
    engine: MeasuredEngine,
    model: str,
    workload: Workload,
    duration_s: float,
    deadline: Deadline,
    cancelled: Callable[[], bool] | None = None,
    headers: Mapping[str, str] | None = None,
) -> SoakResult:
    """Load the server for `duration_s` seconds and say what became of the requests.

    Raises:
        Stopped: `cancelled` said so.
        BenchmarkFailed: the deadline passed, or the load client died.
    """
    concurrency = max(workload.concurrency)
    rounds: list[list[RequestSample]] = []
    asked = dataclasses.replace(workload, waves=WAVES, arrival_rate_s=None)
    until = deadline.sooner(duration_s)
    with LoadClient(url, headers=dict(headers or {})) as client:
        while not until.passed:
            salt = f"soak{len(rounds)}."
            planned = level_requests(asked, concurrency, engine=engine.name, model=model, salt=salt)
            samples, stats = client.run(planned, asked, concurrency, deadline=deadline, cancelled=cancelled)
            rounds.append(samples)
            if any(not s.ok for s in samples):
                break
    if not rounds:
        raise BenchmarkFailed("the soak had no time", remedy="raise budget.soak_s or the study's hours")
    return _result(rounds, stats.end_s)


def _result(rounds: list[list[RequestSample]], duration_s: float) -> SoakResult:
    samples = [s for r in rounds for s in r]
    errors = error_counts(samples)
    third = max(1, len(rounds) // 3)
    first, last = (mean_speed(blocks([s for r in part for s in r])) for part in (rounds[:third], rounds[-third:]))
    problems, warnings = [], []
    if errors:
        told = ", ".join(f"{n} {cause}" for cause, n in errors.items())
        problem = next(s.error for s in samples if s.error)
        problems.append(
            f"{told} of {len(samples)} requests failed after {duration_s:.0f} s of load; the first: {problem}"
        )
    elif first > 0 and last < (1 - SLOWER_SHARE) * first:
        warnings.append(f"speed fell from {first:.1f} to {last:.1f} tok/s during {duration_s:.0f} s of load")
    return SoakResult(not errors, len(samples), errors, duration_s, first, last, tuple(problems), tuple(warnings))
