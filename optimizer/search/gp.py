"""An exact Gaussian process over configurations, small enough to fit anew at every suggestion.

Decides the kernel (additive main effects plus one interaction term over shared relevances), the priors, and how
hyperparameters are found. In logarithms flags act almost additively, which few starts suffice to learn; the interaction
term catches the rest. Knows nothing of Optuna, flags or acquisition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from optimizer.search.blas import use_one_thread
from optimizer.search.encoding import Encoded, Floats, distances, one_hot, paired_distances

use_one_thread()

MAIN_SHARPNESS = 2.0
"""Fall of a main effect over a whole ladder, exp(-2): neighbours on a ladder of eight are alike to 96 %."""
JITTER = 1e-8
MAX_ITERATIONS = 40
MIN_SCALE = 0.05
"""Spread assumed while there is hardly any data: flags change the speed by some 5 % at least."""
BOUNDS = (-14.0, 6.0)
"""Of the logarithms of the hyperparameters, against overflow."""


@dataclass(frozen=True)
class Prior:
    """Normal priors on the logarithms of the hyperparameters, for standardised data."""

    relevance: tuple[float, float] = (np.log(0.3), 1.3)
    main: tuple[float, float] = (np.log(0.5), 1.0)
    interaction: tuple[float, float] = (np.log(0.5), 1.0)
    noise_cv: tuple[float, float] = (np.log(0.03), 0.7)
    """Run-to-run variation as a fraction, before standardising."""


@dataclass(frozen=True)
class Fit:
    """A fitted process: data, hyperparameters, and what prediction needs."""

    rows: Encoded
    relevance: Floats
    main: float
    interaction: float
    noise: float
    """Variance of one full measurement, standardised."""
    offset: float
    scale: float
    nuisance: Floats
    """Covariance of what is not the configuration's (hosts, partial measurements), standardised."""
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
            cross += weight * self._cross(rows)
            for other, with_rows in parts:
                prior += weight * other * self._paired(rows, with_rows)
        half = solve_triangular(self.lower, cross.T, lower=True, check_finite=False)
        variance = np.maximum(prior - np.sum(half**2, axis=0), 1e-12)
        return self.offset * total + self.scale * (cross @ self.alpha), self.scale * np.sqrt(variance)

    def _cross(self, rows: Encoded) -> Floats:
        return _covariance(rows, self.rows, self.relevance, self.main, self.interaction)

    def _paired(self, a: Encoded, b: Encoded) -> Floats:
        if a is b:
            weight = float(self.main * np.sum(-np.expm1(-self.relevance)) + self.interaction)
            return np.full(len(a), weight)
        return _kernel(paired_distances(a, b), self.relevance, self.main, self.interaction)

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
        more = len(rows)
        targets = np.concatenate([self.targets, self._cross(rows) @ self.alpha])
        nuisance = np.pad(self.nuisance, ((0, more), (0, more)))
        return _solved(
            self.rows.joined(rows),
            targets,
            nuisance,
            self.relevance,
            self.main,
            self.interaction,
            self.noise,
            self.offset,
            self.scale,
        )

    @property
    def noise_sd(self) -> float:
        """Standard deviation of one full measurement, in the units of the data."""
        return float(self.scale * np.sqrt(self.noise))


def fit(rows: Encoded, values: Floats, *, nuisance: Floats | None = None, prior: Prior | None = None) -> Fit:
    """Fit a process by maximum a posteriori; deterministic.

    `values` are logarithms; `nuisance` is a covariance of what does not belong to the configuration, in units of
    `values` squared (a diagonal for partial measurements, blocks for hosts).
    """
    prior = prior or Prior()
    gap = distances(rows, rows)
    dims = gap.shape[0]
    offset = float(np.mean(values))
    spread = float(np.std(values)) if len(values) > 2 else 0.0
    scale = max(spread, MIN_SCALE)
    targets = (values - offset) / scale
    aside = np.zeros((len(values), len(values))) if nuisance is None else nuisance / scale**2
    start = _prior_means(prior, dims, scale)
    objective = _Objective(gap, targets, aside, start, _prior_sds(prior, dims))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_ITERATIONS})
    theta = np.clip(found.x if np.all(np.isfinite(found.x)) else start, *BOUNDS)
    relevance, (main, interaction, noise) = np.exp(theta[:dims]), np.exp(theta[dims:])
    return _solved(rows, targets, aside, relevance, float(main), float(interaction), float(noise), offset, scale)


def _solved(
    rows: Encoded,
    targets: Floats,
    nuisance: Floats,
    relevance: Floats,
    main: float,
    interaction: float,
    noise: float,
    offset: float,
    scale: float,
) -> Fit:
    covariance = _covariance(rows, rows, relevance, main, interaction) + nuisance
    covariance[np.diag_indices_from(covariance)] += noise + JITTER
    lower = _cholesky(covariance)
    alpha = cho_solve((lower, True), targets, check_finite=False)
    return Fit(rows, relevance, main, interaction, noise, offset, scale, nuisance, targets, lower, alpha)


def _cholesky(covariance: Floats) -> Floats:
    """Decompose, with as much jitter as it takes: distances to categories are not quite Euclidean."""
    jitter = 0.0
    while True:
        try:
            shifted = covariance + jitter * np.eye(len(covariance))
            return np.asarray(cholesky(shifted, lower=True, check_finite=False))
        except np.linalg.LinAlgError:
            jitter = max(1e-6, 10 * jitter)


def _kernel(gap: Floats, relevance: Floats, main: float, interaction: float) -> Floats:
    """Return the covariance. Main effects weigh as much as their parameter is relevant."""
    square = gap**2
    weights = -np.expm1(-relevance)
    additive = np.tensordot(weights, np.exp(-MAIN_SHARPNESS * square), axes=1)
    product = np.exp(-np.tensordot(relevance, square, axes=1))
    return np.asarray(main * additive + interaction * product)


def _covariance(a: Encoded, b: Encoded, relevance: Floats, main: float, interaction: float) -> Floats:
    """Return the covariance of all rows of a with all rows of b, by products of one-hot rows."""
    left, right, tables = one_hot(a, b)
    weights = -np.expm1(-relevance)
    effects = block_diag(*(w * np.exp(-MAIN_SHARPNESS * t**2) for w, t in zip(weights, tables, strict=True)))
    exponents = block_diag(*(r * t**2 for r, t in zip(relevance, tables, strict=True)))
    additive = (left @ effects) @ right.T
    return np.asarray(main * additive + interaction * np.exp(-(left @ exponents) @ right.T))


class _Objective:
    """Negative log posterior of the hyperparameters with its gradient."""

    def __init__(self, gap: Floats, targets: Floats, nuisance: Floats, means: Floats, sds: Floats) -> None:
        dims, n, _ = gap.shape
        self.square = (gap**2).reshape(dims, n * n)
        self.effect = np.exp(-MAIN_SHARPNESS * self.square)
        self.targets, self.nuisance, self.means, self.sds = targets, nuisance, means, sds
        self.n, self.dims = n, dims

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        dims, n = self.dims, self.n
        theta = np.clip(theta, *BOUNDS)
        relevance, (main, interaction, noise) = np.exp(theta[:dims]), np.exp(theta[dims:])
        weights = -np.expm1(-relevance)
        additive = weights @ self.effect
        product = interaction * np.exp(-(relevance @ self.square))
        covariance = (main * additive + product).reshape(n, n) + self.nuisance
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
        flat = sensitivity.ravel()
        gradient = np.empty_like(theta)
        gradient[:dims] = main * relevance * np.exp(-relevance) * (self.effect @ flat)
        gradient[:dims] -= relevance * (self.square @ (flat * product))
        gradient[dims] = main * (flat @ additive)
        gradient[dims + 1] = flat @ product
        gradient[dims + 2] = noise * np.trace(sensitivity)
        return float(value), gradient + away / self.sds


def _prior_means(prior: Prior, dims: int, scale: float) -> Floats:
    noise = 2 * (prior.noise_cv[0] - np.log(scale))
    return np.array([prior.relevance[0]] * dims + [prior.main[0], prior.interaction[0], noise])


def _prior_sds(prior: Prior, dims: int) -> Floats:
    return np.array([prior.relevance[1]] * dims + [prior.main[1], prior.interaction[1], 2 * prior.noise_cv[1]])
