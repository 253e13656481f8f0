"""The model of speed: how fast a configuration would be, and how sure that is.

Decides on one process over the logarithm of the speed, or on two (accept length and step time) whose difference it is,
or on their average by how well each predicted what was left out. Ratios to the host's baseline are used where known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.engines.base import FlagValue
from optimizer.search.encoding import Encoded, Encoder, Floats
from optimizer.search.gp import Fit, Prior, fit
from optimizer.search.history import Observation

PARTIAL_SD = 0.05
"""Extra spread of a partial measurement: the prompts left out differ from those seen."""
ACCEPT_PRIOR = Prior(noise_cv=(math.log(0.01), 0.7))
"""Greedy accept lengths repeat almost exactly."""
MIN_FOR_PARTS = 5


@dataclass(frozen=True)
class SpeedModel:
    """Logarithm of the speed (or of its ratio to the baseline) as a process, or as the difference of two."""

    observations: tuple[Observation, ...]
    rows: Encoded
    whole: Fit
    accept: Fit | None = None
    step: Fit | None = None
    weight: float = 0.0
    """Share of the two-part model, 0..1."""

    def predict(self, rows: Encoded) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the log speed without noise."""
        mean, sd = self.whole.predict(rows)
        if self.accept is None or self.step is None or self.weight <= 0:
            return mean, sd
        accept, accept_sd = self.accept.predict(rows)
        step, step_sd = self.step.predict(rows)
        other, w = accept - step, self.weight
        both = (1 - w) * mean + w * other
        second = (1 - w) * (sd**2 + mean**2) + w * (accept_sd**2 + step_sd**2 + other**2)
        return both, np.sqrt(np.maximum(second - both**2, 1e-12))

    def incumbent(self) -> float:
        """Return the best posterior mean among the measured configurations, never the best single number."""
        return float(np.max(self.predict(self.rows)[0]))

    def best(self, count: int) -> list[dict[str, FlagValue]]:
        """Return the measured configurations by posterior mean, best first, each once."""
        mean = self.predict(self.rows)[0]
        found: dict[str, dict[str, FlagValue]] = {}
        for i in np.argsort(-mean, kind="stable"):
            found.setdefault(self.observations[i].key, self.observations[i].params)
            if len(found) == count:
                break
        return list(found.values())


def log_values(observations: Sequence[Observation]) -> Floats:
    """Return log(value / reference) where every observation has a reference, else log(value)."""
    relative = all(o.reference for o in observations)
    return np.array(
        [math.log(o.value / (o.reference if relative and o.reference else 1.0)) for o in observations if o.value]
    )


def fit_speed(encoder: Encoder, observations: Sequence[Observation], *, parts: str = "auto") -> SpeedModel:
    """Fit the model to complete and partial observations."""
    rows = encoder.encode([o.features for o in observations])
    values = log_values(observations)
    extra = np.array([PARTIAL_SD**2 if o.kind == "partial" else 0.0 for o in observations])
    whole = fit(rows, values, extra_variance=extra)
    lengths = [o.accept_len for o in observations]
    if parts == "never" or len(observations) < MIN_FOR_PARTS or sum(a is not None for a in lengths) < 2:
        return SpeedModel(tuple(observations), rows, whole)
    logs = np.log(np.array([a or 1.0 for a in lengths]))
    accept = fit(rows, logs, extra_variance=extra, prior=ACCEPT_PRIOR)
    step = fit(rows, logs - values, extra_variance=extra)
    weight = 1.0 if parts == "always" else _weight(whole, accept, step, values)
    return SpeedModel(tuple(observations), rows, whole, accept, step, weight)


def _weight(whole: Fit, accept: Fit, step: Fit, values: Floats) -> float:
    """Share of the two-part model by leave-one-out predictive density."""
    mean, variance = whole.leave_one_out()
    a, a_variance = accept.leave_one_out()
    s, s_variance = step.leave_one_out()
    one = _log_density(values, mean, variance)
    two = _log_density(values, a - s, a_variance + s_variance)
    return float(1.0 / (1.0 + math.exp(min(50.0, max(-50.0, one - two)))))


def _log_density(values: Floats, mean: Floats, variance: Floats) -> float:
    return float(np.sum(-0.5 * np.log(2 * np.pi * variance) - 0.5 * (values - mean) ** 2 / variance))
