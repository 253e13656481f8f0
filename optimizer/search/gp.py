"""An exact Gaussian process over configurations, small enough to fit anew at every suggestion.

Decides the priors and how hyperparameters are found; the covariance itself is `kernel.py`. Knows nothing of Optuna,
flags or acquisition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from optimizer.search.blas import use_one_thread
from optimizer.search.encoding import Encoded, Floats
from optimizer.search.kernel import Kernel, Sensitivities

use_one_thread()

JITTER = 1e-8
MAX_ITERATIONS = 40
MIN_SCALE = 0.05
"""Spread assumed while there is hardly any data: flags change the speed by some 5 % at least."""
BOUNDS = (-14.0, 6.0)
"""Of the logarithms of the hyperparameters, against overflow."""


@dataclass(frozen=True)
class Prior:
    """Normal priors (mean, standard deviation) on the logarithms of the hyperparameters, for standardised data."""

    relevance: tuple[float, float] = (np.log(0.3), 1.3)
    main: tuple[float, float] = (np.log(0.5), 1.0)
    pairs: tuple[float, float] = (np.log(0.5), 1.0)
    anything: tuple[float, float] = (np.log(0.5), 1.0)
    own_cv: tuple[float, float] = (np.log(0.02), 0.7)
    """What nothing but the configuration itself explains, as a fraction, before standardising."""
    drift_cv: tuple[float, float] = (np.log(0.005), 1.0)
    """What neighbours in time share, as a fraction, before standardising."""
    noise_cv: tuple[float, float] = (np.log(0.03), 0.7)
    """Run-to-run variation as a fraction, before standardising."""

    def moments(self, dims: int, scale: float) -> tuple[Floats, Floats]:
        """Return means and standard deviations of all hyperparameters, the variances of `scale`d data last."""
        fractions = (self.own_cv, self.drift_cv, self.noise_cv)
        variances = [(2 * (mean - np.log(scale)), 2 * sd) for mean, sd in fractions]
        both = np.array([*[self.relevance] * dims, self.main, self.pairs, self.anything, *variances])
        return both[:, 0], both[:, 1]


@dataclass(frozen=True)
class Fit:
    """A fitted process: data, hyperparameters, and what prediction needs."""

    rows: Encoded
    kernel: Kernel
    noise: float
    """Variance of one full measurement, standardised."""
    offset: float
    scale: float
    nuisance: Floats
    """Covariance of what is not the configuration's (hosts, drift, partial measurements), standardised."""
    targets: Floats
    lower: Floats
    alpha: Floats

    def predict(self, rows: Encoded) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the noise-free value, in the units of the data."""
        return self.predict_mix([(1.0, rows)])

    def predict_mix(self, parts: Sequence[tuple[float, Encoded]]) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of a weighted sum of values at rows that belong together."""
        total = sum(weight for weight, _ in parts)
        cross = np.zeros((len(parts[0][1]), len(self.rows)))
        prior = np.zeros(len(parts[0][1]))
        for weight, rows in parts:
            cross += weight * self.kernel.between(rows, self.rows)
            for other, with_rows in parts:
                prior += weight * other * self.kernel.paired(rows, with_rows)
        half = solve_triangular(self.lower, cross.T, lower=True, check_finite=False)
        variance = np.maximum(prior - np.sum(half**2, axis=0), 1e-12)
        return self.offset * total + self.scale * (cross @ self.alpha), self.scale * np.sqrt(variance)

    def leave_one_out(self) -> tuple[Floats, Floats]:
        """Return mean and variance of each observation predicted from all others, in the units of the data."""
        inverse = cho_solve((self.lower, True), np.eye(len(self.rows)), check_finite=False)
        diagonal = np.diag(inverse)
        mean = self.targets - self.alpha / diagonal
        return self.offset + self.scale * mean, self.scale**2 / diagonal

    def expecting(self, rows: Encoded) -> Fit:
        """Return the process as if `rows` had been measured just as predicted: surer there, the same everywhere."""
        if len(rows) == 0:
            return self
        targets = np.concatenate([self.targets, self.kernel.between(rows, self.rows) @ self.alpha])
        nuisance = np.pad(self.nuisance, ((0, len(rows)), (0, len(rows))))
        lower, alpha = _solved(self.kernel, self.noise, self.rows.joined(rows), targets, nuisance)
        return replace(self, rows=self.rows.joined(rows), nuisance=nuisance, targets=targets, lower=lower, alpha=alpha)

    def systematic(self) -> Fit:
        """Return the process without what only single configurations have: what flags do, not what one server does."""
        return replace(self, kernel=replace(self.kernel, own=0.0))

    @property
    def noise_sd(self) -> float:
        """Standard deviation of one full measurement, in the units of the data."""
        return float(self.scale * np.sqrt(self.noise))


def fit(
    rows: Encoded,
    values: Floats,
    *,
    nuisance: Floats | None = None,
    drift: Floats | None = None,
    prior: Prior | None = None,
) -> Fit:
    """Fit a process by maximum a posteriori; deterministic.

    `values` are logarithms; `nuisance` is a covariance of what does not belong to the configuration, in units of
    `values` squared (a diagonal for partial measurements, blocks for hosts); `drift` is the correlation of what changes
    slowly with time, whose size is learnt.
    """
    offset = float(np.mean(values))
    spread = float(np.std(values)) if len(values) > 2 else 0.0
    scale = max(spread, MIN_SCALE)
    targets = (values - offset) / scale
    nothing = np.zeros((len(values), len(values)))
    aside = nothing if nuisance is None else nuisance / scale**2
    drift = nothing if drift is None else drift
    start, sds = (prior or Prior()).moments(rows.codes.shape[1], scale)
    objective = Objective(rows, targets, aside, drift, start, sds)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_ITERATIONS})
    kernel, drifting, noise = hyperparameters(found.x if np.all(np.isfinite(found.x)) else start)
    aside = aside + drifting * drift
    lower, alpha = _solved(kernel, noise, rows, targets, aside)
    return Fit(rows, kernel, noise, offset, scale, aside, targets, lower, alpha)


def hyperparameters(theta: Floats) -> tuple[Kernel, float, float]:
    """Return kernel, drift and noise of logarithms as they are optimised."""
    values = np.exp(np.clip(theta, *BOUNDS))
    main, pairs, anything, own, drift, noise = (float(v) for v in values[-6:])
    return Kernel(values[:-6], main, pairs, anything, own), drift, noise


def _solved(kernel: Kernel, noise: float, rows: Encoded, targets: Floats, nuisance: Floats) -> tuple[Floats, Floats]:
    """Return the decomposed covariance of the data, and its solution for the targets."""
    covariance = kernel.between(rows, rows) + nuisance
    covariance[np.diag_indices_from(covariance)] += noise + JITTER
    lower = _cholesky(covariance)
    return lower, cho_solve((lower, True), targets, check_finite=False)


def _cholesky(covariance: Floats) -> Floats:
    """Decompose, with as much jitter as it takes: distances to categories are not quite Euclidean."""
    for jitter in (0.0, *(10.0**power for power in range(-6, 7))):
        try:
            shifted = covariance + jitter * np.eye(len(covariance))
            return np.asarray(cholesky(shifted, lower=True, check_finite=False))
        except np.linalg.LinAlgError:
            continue
    raise FloatingPointError("the covariance has entries that are no numbers")


class Objective:
    """Negative log posterior of the hyperparameters with its gradient."""

    def __init__(
        self, rows: Encoded, targets: Floats, nuisance: Floats, drift: Floats, means: Floats, sds: Floats
    ) -> None:
        self.parts = Sensitivities(rows)
        self.targets, self.nuisance, self.drift = targets, nuisance, drift
        self.means, self.sds = means, sds

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        n = len(self.targets)
        theta = np.clip(theta, *BOUNDS)
        kernel, drift, noise = hyperparameters(theta)
        covariance = self.parts.covariance(kernel).reshape(n, n) + self.nuisance + drift * self.drift
        covariance[np.diag_indices(n)] += noise + JITTER
        try:
            lower = cholesky(covariance, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = cho_solve((lower, True), np.eye(n), check_finite=False)
        alpha = inverse @ self.targets
        away = (theta - self.means) / self.sds
        value = 0.5 * self.targets @ alpha + np.log(np.diag(lower)).sum() + 0.5 * away @ away
        sensitivity = 0.5 * (inverse - np.outer(alpha, alpha))
        aside = [drift * np.sum(sensitivity * self.drift), noise * np.trace(sensitivity)]
        gradient = np.concatenate([self.parts.gradient(kernel, sensitivity.ravel()), aside])
        return float(value), gradient + away / self.sds
