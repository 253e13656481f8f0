"""How noisy a host is, and what a win would cost there: variance components of restarts, and the restarts needed. Pure.

Decides how noise is estimated from restarts of one unchanged configuration. Making those restarts is the caller's;
`ratchet run --self-test` judges the baseline against itself and reports what these functions say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from optimizer.bench.base import Outcome, VerdictResult
from optimizer.bench.judging import (
    BASELINE,
    CANDIDATE,
    WIN_SHARE,
    Restart,
    common_prompts,
    judge,
    look_share,
    next_arm,
)

POWER = 0.9
"""A number of restarts is enough when a gain of that size becomes a win in nine of ten studies."""
MOST_RESTARTS = 200


@dataclass(frozen=True)
class Noise:
    """Scatter of log speed of one unchanged configuration (about the coefficient of variation)."""

    within: float
    """Of a single value within one server start."""
    between: float
    """Of the server starts themselves, beyond what `within` explains."""
    restart: float
    """Of the mean of one restart: what the verdict has to deal with."""
    restarts: int
    prompts: int


@dataclass(frozen=True)
class SelfTest:
    """The baseline judged against itself. `passed` is False when that came out as a win."""

    passed: bool
    result: VerdictResult
    noise: Noise
    restarts_needed: dict[float, int | None]
    """By gain (0.02 = +2 %): restarts per arm that make it a win, None when `MOST_RESTARTS` do not."""


def estimate_noise(prompts: Sequence[str], restarts: Sequence[Restart]) -> Noise:
    """Split the scatter of at least two restarts into its parts within and between restarts.

    Raises:
        ValueError: fewer than two restarts, or no prompt that all of them have.
    """
    common = common_prompts(prompts, restarts)
    if len(restarts) < 2 or not common:
        raise ValueError("noise needs two restarts with a prompt in common")
    logs = [[[math.log(v) for v in r.tok_s[p] if v > 0] for p in common] for r in restarts]
    cells = [[sum(values) / len(values) for values in row] for row in logs]
    means = [sum(row) / len(row) for row in cells]
    prompt_means = [sum(row[i] for row in cells) / len(cells) for i in range(len(common))]
    grand = sum(means) / len(means)
    squares = sum(
        (value - means[r] - prompt_means[p] + grand) ** 2
        for r, row in enumerate(logs)
        for p, values in enumerate(row)
        for value in values
    )
    count = sum(len(values) for row in logs for values in row)
    freedom = count - len(restarts) - len(common) + 1
    within = math.sqrt(squares / freedom) if freedom > 0 else 0.0
    variance = sum((m - grand) ** 2 for m in means) / (len(means) - 1)
    between = math.sqrt(max(0.0, variance - within**2 * len(restarts) / count))
    return Noise(within, between, math.sqrt(variance), len(restarts), len(common))


def restarts_needed(noise: Noise, gain: float, *, alpha: float = 0.05, most: int = MOST_RESTARTS) -> int | None:
    """Return the restarts per arm that make a gain of `gain` (0.02 = +2 %) a win in nine of ten studies."""
    effect = math.log1p(gain)
    for count in range(2, most + 1):
        share = alpha * WIN_SHARE * look_share(count, count, 2 * count)
        freedom = 2 * count - 2
        quantiles = -stdtrit(freedom, share) - stdtrit(freedom, 1 - POWER)
        if effect >= float(quantiles) * noise.restart * math.sqrt(2 / count):
            return count
    return None


def as_arms(restarts: Sequence[Restart]) -> list[Restart]:
    """Label restarts of one configuration as two arms in the order A B B A, as a real confirmation would."""
    counts = {BASELINE: 0, CANDIDATE: 0}
    labelled = []
    for restart in restarts:
        arm = next_arm(counts[BASELINE], counts[CANDIDATE])
        counts[arm] += 1
        labelled.append(Restart(arm, restart.tok_s))
    return labelled


def self_test(
    prompts: Sequence[str],
    restarts: Sequence[Restart],
    *,
    alpha: float = 0.05,
    min_effect: float = 0.01,
    gains: Sequence[float] = (0.02, 0.05, 0.10),
) -> SelfTest:
    """Judge restarts of one configuration against each other, look by look, and say how noisy the host is.

    Raises:
        ValueError: fewer than two restarts, or no prompt that all of them have.
    """
    labelled = as_arms(restarts)
    noise = estimate_noise(prompts, restarts)
    result = judge(prompts, labelled, alpha=alpha, min_effect=min_effect, max_restarts=len(labelled))
    for end in range(4, len(labelled)):
        early = judge(prompts, labelled[:end], alpha=alpha, min_effect=min_effect, max_restarts=len(labelled))
        if early.outcome is Outcome.WIN:
            result = early
            break
    needed = {gain: restarts_needed(noise, gain, alpha=alpha) for gain in gains}
    return SelfTest(result.outcome is not Outcome.WIN, result, noise, needed)
