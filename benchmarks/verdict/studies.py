"""Simulated studies: what exploring shows, what fresh restarts would show, and what each rule makes of it.

The noise of one value is log-normal: a part of its own (within a restart) and a part shared by all prompts of one
restart (between restarts). `Source` can also draw whole restarts from residuals that were really recorded.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from optimizer.bench.base import Outcome
from optimizer.bench.verdict import BASELINE, Restart, plan_confirmation
from optimizer.phases import BASELINE_EVERY

PROMPTS = ("code", "prose", "reasoning", "json", "summary")
SPEED = dict(zip(PROMPTS, (113.0, 78.0, 84.0, 101.0, 82.0), strict=True))
REPEATS = 3
TOP = 3
BASELINE_RESTARTS = 2
"""Of `baseline.restarts`, before anything is explored."""


@dataclass
class Source:
    """Where the noise comes from: two standard deviations of log speed, or recorded residuals by restart.

    With `modes` each start is that much faster or slower by the toss of a coin, beside its normal scatter.
    """

    rng: np.random.Generator
    within: float = 0.0
    between: float = 0.0
    modes: float = 0.0
    residuals: np.ndarray | None = None

    def restart(self, effect: float) -> np.ndarray:
        """Return the log speeds of one restart, prompts by repeats, without the prompts' own speed."""
        if self.residuals is not None:
            row = self.residuals[self.rng.integers(len(self.residuals))]
            return effect + np.repeat(row[:, None], REPEATS, axis=1)
        shared = self.rng.normal(0, self.between) + self.modes * self.rng.integers(2)
        return effect + shared + self.rng.normal(0, self.within, (len(PROMPTS), REPEATS))


@dataclass(frozen=True)
class Ended:
    """What one study declared: the index of the winner (None: no win), its interval, and the restarts confirmed."""

    winner: int | None
    ratio: float
    low: float
    high: float
    restarts: int


def as_restart(arm: str, logs: np.ndarray, repeats: int) -> Restart:
    """Turn log speeds into a restart as the verdict sees it; a recorded one may have fewer prompts."""
    return Restart(
        arm, {p: [SPEED[p] * math.exp(v) for v in row[:repeats]] for p, row in zip(PROMPTS, logs, strict=False)}
    )


def explore(source: Source, effects: Sequence[float]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Measure the baseline at the start and between explored trials, as the program does, and every configuration."""
    baselines = BASELINE_RESTARTS + len(effects) // BASELINE_EVERY
    return [source.restart(0.0) for _ in range(baselines)], [source.restart(e) for e in effects]


def ranking(explored: list[np.ndarray]) -> list[int]:
    """Return the configurations by what was seen of them, the best first."""
    return sorted(range(len(explored)), key=lambda i: -float(explored[i][:, 0].mean()))


def ratchet(
    source: Source, effects: Sequence[float], baselines: list[np.ndarray], explored: list[np.ndarray], budget: int
) -> Ended:
    """Confirm the best of what was explored, as the program does."""
    names = [str(i) for i in ranking(explored)[:TOP]]
    earlier = [as_restart(BASELINE, logs, 1) for logs in baselines]
    restarts: list[Restart] = []
    while True:
        now = plan_confirmation(PROMPTS, names, restarts, max_restarts=budget, earlier=earlier)
        if now.next_arm is None:
            break
        effect = 0.0 if now.next_arm == BASELINE else effects[int(now.next_arm)]
        restarts.append(as_restart(now.next_arm, source.restart(effect), 1))
    if now.winner is None:
        return Ended(None, 1.0, 0.0, math.inf, len(restarts))
    result = now.results[now.winner]
    assert result.outcome is Outcome.WIN
    return Ended(int(now.winner), result.ratio, result.ci_low, result.ci_high, len(restarts))


def best_beats(baseline: np.ndarray, explored: list[np.ndarray], margin: float) -> int | None:
    """The usual rule: the best single number wins when it beats the baseline's by the margin."""
    means = [e[:, 0].mean() for e in explored]
    best = int(np.argmax(means))
    return best if means[best] - baseline[:, 0].mean() > math.log1p(margin) else None


def t_test_within(baseline: np.ndarray, explored: list[np.ndarray]) -> int | None:
    """The careful-looking rule: repeats within one server start, a paired t-test of the best one at 5 %."""
    best = max(range(len(explored)), key=lambda i: explored[i].mean())
    difference = (explored[best] - baseline).ravel()
    result = stats.ttest_1samp(difference, 0.0, alternative="greater")
    return best if result.pvalue < 0.05 else None


def recorded_residuals(table: Path) -> np.ndarray:
    """Return the residuals of log speed by restart and prompt, over all configurations with repeated restarts.

    Residuals are widened by sqrt(n / (n - 1)), since they are taken from the mean of only n restarts.
    """
    groups: dict[tuple[str, ...], list[list[float]]] = defaultdict(list)
    with table.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            prompts = [k for k in row if k.startswith("tok_s.")]
            if row.get("tok_s") and prompts and all(row[p] for p in prompts):
                key = tuple(v for k, v in row.items() if k.startswith("p."))
                groups[key].append([math.log(float(row[p])) for p in prompts][: len(PROMPTS)])
    rows = []
    for values in groups.values():
        if len(values) > 1:
            logs = np.array(values)
            rows.append((logs - logs.mean(axis=0)) * math.sqrt(len(values) / (len(values) - 1)))
    if not rows:
        raise SystemExit(f"{table} has no configuration with two restarts and values by prompt")
    return np.concatenate(rows)
