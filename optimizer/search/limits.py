"""Limits that a winner must keep (`ttft_p99_ms <= 800`), learnt like the speed.

Decides the probability that a configuration keeps every limit. A metric that was not measured counts as not kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from optimizer.search.encoding import Encoded, Encoder, Floats
from optimizer.search.gp import Fit, Prior, fit
from optimizer.search.history import Observation

METRIC_PRIOR = Prior(noise_cv=(math.log(0.10), 0.7))
"""Tail latencies repeat far worse than speeds."""
SMALLEST = 1e-6
"""Stands for zero (an error rate) in the logarithm."""
SLACK = 1e-3
"""A limit of exactly what is measured is kept."""
MISSING = 0.02
"""Probability of keeping a limit whose metric was never measured."""

Limits = Mapping[str, tuple[float | None, float | None]]
"""Lowest and highest allowed value by metric."""


@dataclass(frozen=True)
class _Modelled:
    fit: Fit
    low: float | None
    high: float | None

    def chance(self, rows: Encoded) -> Floats:
        mean, sd = self.fit.predict(rows)
        kept = np.ones(len(rows))
        if self.high is not None:
            kept *= ndtr((_log(self.high) + SLACK - mean) / sd)
        if self.low is not None:
            kept *= ndtr((mean - _log(self.low) + SLACK) / sd)
        return np.asarray(kept)


def keeps(observation: Observation, limits: Limits) -> bool:
    """Say whether what was measured keeps every limit."""
    return all(_within(observation.metrics.get(name), low, high) for name, (low, high) in limits.items())


def chance_of_keeping(encoder: Encoder, seen: Sequence[Observation], limits: Limits, rows: Encoded) -> Floats:
    """Return the probability that each row keeps every limit; ones when there are none."""
    chance = np.ones(len(rows))
    for name, (low, high) in limits.items():
        known = [o for o in seen if name in o.metrics]
        if len(known) < 2:
            kept = [o for o in known if _within(o.metrics[name], low, high)]
            chance *= 0.5 if kept or not seen else MISSING
            continue
        values = np.array([_log(o.metrics[name]) for o in known])
        model = fit(encoder.encode([o.features for o in known]), values, prior=METRIC_PRIOR)
        chance *= _Modelled(model, low, high).chance(rows)
    return np.maximum(chance, 1e-6)


def _within(value: float | None, low: float | None, high: float | None) -> bool:
    if value is None:
        return False
    return (high is None or value <= high) and (low is None or value >= low)


def _log(value: float) -> float:
    return math.log(max(value, SMALLEST))
