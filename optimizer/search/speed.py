"""The model of speed: how fast a configuration would be, and how sure that is.

Decides on one process over the logarithm of the speed, or on two (accept length and step time) whose difference it is,
or on their average by how well each predicted what was left out. Ratios to the host's baseline are used where every
observation has one, else hosts and slow drift are part of the model; several concurrency levels are one model with the
level as an input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from optimizer.engines.base import FlagValue
from optimizer.search.encoding import Encoded, Encoder, Floats
from optimizer.search.gp import Fit, Prior, fit
from optimizer.search.history import Observation

PARTIAL_SD = 0.05
"""Extra spread of a partial measurement: the prompts left out differ from those seen."""
HOST_SD = 0.10
"""Spread between hosts of one kind, where no baseline tells it."""
DRIFT_STARTS = 16.0
"""Starts after which a host's drift (heat, neighbours) is forgotten to a third; the baseline is measured more often."""
ACCEPT_PRIOR = Prior(noise_cv=(math.log(0.01), 0.7))
"""Greedy accept lengths repeat almost exactly."""
MIN_FOR_PARTS = 5
NOISY = 0.06
"""Run-to-run variation from which the parts are modelled: accept lengths repeat, so they help where speeds do not."""
MAX_FOR_PARTS = 80
"""With more observations one process knows as much, and three take three times as long."""
LEVEL_METRIC = "output_tok_s@{level}"

Levels = Mapping[int, float]
"""Weight of each concurrency level in the objective; a weighted geometric mean."""


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
    levels: dict[int, float] = field(default_factory=dict)
    """Weights by level; empty for a single level."""

    def predict(self, rows: Encoded) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the log speed without noise."""
        if self.levels:
            return self.whole.predict_mix([(w, rows.with_axis(p)) for p, w in _placed(self.levels)])
        mean, sd = self.whole.predict(rows)
        if self.accept is None or self.step is None or self.weight <= 0:
            return mean, sd
        accept, accept_sd = self.accept.predict(rows)
        step, step_sd = self.step.predict(rows)
        other, w = accept - step, self.weight
        both = (1 - w) * mean + w * other
        second = (1 - w) * (sd**2 + mean**2) + w * (accept_sd**2 + step_sd**2 + other**2)
        return both, np.sqrt(np.maximum(second - both**2, 1e-12))

    def predict_level(self, rows: Encoded, level: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the log speed at one concurrency level."""
        places = dict(zip(self.levels, (p for p, _ in _placed(self.levels)), strict=True))
        return self.whole.predict(rows.with_axis(places[level]))

    def expecting(self, rows: Encoded) -> SpeedModel:
        """Return the model as if `rows`, which are being measured now, had given what is expected of them."""
        if len(rows) == 0:
            return self
        wide = [rows.with_axis(p) for p, _ in _placed(self.levels)] or [rows]
        whole = self.whole
        for part in wide:
            whole = whole.expecting(part)
        accept = self.accept.expecting(rows) if self.accept else None
        step = self.step.expecting(rows) if self.step else None
        return SpeedModel(self.observations, self.rows, whole, accept, step, self.weight, self.levels)

    def measured_means(self) -> Floats:
        """Return the posterior mean of each observation's configuration."""
        return self.predict(self.rows)[0]

    def best(self, count: int) -> list[dict[str, FlagValue]]:
        """Return the measured configurations by posterior mean, best first, each once."""
        found: dict[str, dict[str, FlagValue]] = {}
        for i in np.argsort(-self.measured_means(), kind="stable"):
            found.setdefault(self.observations[i].key, self.observations[i].params)
            if len(found) == count:
                break
        return list(found.values())


def fit_speed(
    encoder: Encoder,
    observations: Sequence[Observation],
    *,
    parts: str = "auto",
    levels: Levels | None = None,
    prior: Prior | None = None,
) -> SpeedModel:
    """Fit the model to complete and partial observations that carry a value."""
    rows = encoder.encode([o.features for o in observations])
    if levels:
        model = _fit_levels(rows, observations, levels)
        if model is not None:
            return model
    values = log_values(observations)
    nuisance, drift = _nuisance(observations), _drift(observations)
    whole = fit(rows, values, nuisance=nuisance, drift=drift, prior=prior)
    lengths = [o.accept_len for o in observations]
    if (
        parts == "never"
        or not MIN_FOR_PARTS <= len(observations) <= MAX_FOR_PARTS
        or sum(a is not None for a in lengths) < 2
    ):
        return SpeedModel(tuple(observations), rows, whole)
    if parts == "auto" and whole.noise_sd < NOISY:
        return SpeedModel(tuple(observations), rows, whole)
    logs = np.log(np.array([a or 1.0 for a in lengths]))
    accept = fit(rows, logs, nuisance=np.diag(np.diag(nuisance)), prior=ACCEPT_PRIOR)
    step = fit(rows, logs - values, nuisance=nuisance, drift=drift)
    weight = 1.0 if parts == "always" else _weight(whole, accept, step, values)
    return SpeedModel(tuple(observations), rows, whole, accept, step, weight)


def log_values(observations: Sequence[Observation]) -> Floats:
    """Return log(value / reference) where every observation has a reference, else log(value)."""
    scale = references(observations)
    return np.array([math.log((o.value or 1.0) / r) for o, r in zip(observations, scale, strict=True)])


def references(observations: Sequence[Observation]) -> list[float]:
    """Return each observation's baseline where all have one, else ones: ratios and raw values are never mixed."""
    known = [o.reference for o in observations if o.reference]
    return known if len(known) == len(observations) else [1.0] * len(observations)


def _nuisance(observations: Sequence[Observation]) -> Floats:
    """Covariance of partial measurements, and of hosts that no baseline makes comparable."""
    size = len(observations)
    covariance = np.diag([PARTIAL_SD**2 if o.kind == "partial" else 0.0 for o in observations])
    hosts = [o.host for o in observations]
    if len(set(hosts)) > 1 and not all(o.reference for o in observations):
        covariance = covariance + HOST_SD**2 * np.array([[float(a == b) for b in hosts] for a in hosts])
    return covariance.reshape(size, size)


def _drift(observations: Sequence[Observation]) -> Floats:
    """Correlation in time on each host; none where ratios to the baseline have taken it out."""
    times = np.arange(len(observations), dtype=float)
    near = np.exp(-np.abs(times[:, None] - times[None, :]) / DRIFT_STARTS)
    hosts = np.array([o.host for o in observations])
    taken_out = all(o.reference for o in observations)
    return np.zeros_like(near) if taken_out else np.where(hosts[:, None] == hosts[None, :], near, 0.0)


def _fit_levels(rows: Encoded, observations: Sequence[Observation], levels: Levels) -> SpeedModel | None:
    """One process over configuration and level. None when no level was measured."""
    scale = references(observations)
    values: list[float] = []
    index: list[int] = []
    places: list[float] = []
    for level, (place, _) in zip(levels, _placed(levels), strict=True):
        for i, o in enumerate(observations):
            value = o.metrics.get(LEVEL_METRIC.format(level=level))
            if value is not None and value > 0:
                values.append(math.log(value / scale[i]))
                index.append(i)
                places.append(place)
    if not values:
        return None
    wide = rows.take(index).with_axis(0.0)
    wide.codes[:, -1] = places
    measured = [observations[i] for i in index]
    whole = fit(wide, np.array(values), nuisance=_nuisance(measured), drift=_drift(observations)[np.ix_(index, index)])
    total = sum(levels.values())
    return SpeedModel(tuple(observations), rows, whole, levels={k: w / total for k, w in levels.items()})


def _placed(levels: Levels) -> list[tuple[float, float]]:
    """Place of each level in 0..1 by the logarithm of its concurrency, with its weight."""
    logs = [math.log(level) for level in levels]
    low, span = (min(logs), max(logs) - min(logs)) if logs else (0.0, 0.0)
    return [((x - low) / span if span else 0.0, w) for x, w in zip(logs, levels.values(), strict=True)]


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
