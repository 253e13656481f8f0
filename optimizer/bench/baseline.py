"""Whether the baseline is what the user believes, and whether the host drifts through the night. Pure.

Decides when a difference is worth a warning; the study goes on relative to what it measured either way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtr

DRIFT_ERROR = 0.01
LEAST_DRIFT = 0.01
"""A drift below 1 % over the night is not worth a word, however certain."""


def check_expected(measured_tok_s: float, expected_tok_s: float | None, tolerance_pct: float) -> str | None:
    """Return a warning when the baseline is not as fast (or as slow) as expected, else None."""
    if not expected_tok_s or measured_tok_s <= 0:
        return None
    deviation = measured_tok_s / expected_tok_s - 1
    if abs(deviation) * 100 <= tolerance_pct:
        return None
    reason = "slower" if deviation < 0 else "faster"
    return (
        f"the baseline measures {measured_tok_s:.1f} tok/s, {abs(deviation):.1%} {reason} than the expected "
        f"{expected_tok_s:g}: the host is not in the state you believe (clocks, other jobs, another version?), or the "
        "workload is another one; the study goes on relative to what it measured"
    )


@dataclass(frozen=True)
class Drift:
    """A straight line through the baseline's speed over time. `significant` also asks for a size that matters."""

    total: float
    """Relative change from the first to the last restart (0.01 = +1 %)."""
    hours: float
    restarts: int
    significant: bool
    text: str


def drift(hours: Sequence[float], tok_s: Sequence[float]) -> Drift | None:
    """Fit the baseline's restarts over time; None with fewer than three or all at one time.

    `hours` are times of the restarts in hours, `tok_s` the baseline's objective (must be above 0).
    """
    count = len(hours)
    if count < 3 or max(hours) == min(hours):
        return None
    logs = [math.log(v) for v in tok_s]
    mean_x, mean_y = sum(hours) / count, sum(logs) / count
    spread = sum((x - mean_x) ** 2 for x in hours)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(hours, logs, strict=True)) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(hours, logs, strict=True))
    error = math.sqrt(max(rest / (count - 2), 1e-12) / spread)
    total = math.expm1(slope * (max(hours) - min(hours)))
    chance = 2 * float(stdtr(count - 2, -abs(slope) / error))
    hours_long = max(hours) - min(hours)
    significant = chance < DRIFT_ERROR and abs(total) >= LEAST_DRIFT
    text = (
        f"the baseline drifted by {total:+.1%} over {hours_long:.1f} h ({count} restarts): "
        "comparisons are made between neighbours in time, but look at clocks and temperatures"
        if significant
        else ""
    )
    return Drift(total, hours_long, count, significant, text)
