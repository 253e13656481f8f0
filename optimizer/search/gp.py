"""An exact Gaussian process over configurations, small enough to fit anew at every suggestion.

Decides the kernel (additive main effects plus one interaction term over shared relevances), the priors, and how
hyperparameters are found. In logarithms flags act almost additively, which few starts suffice to learn; the interaction
term catches the rest. Knows nothing of Optuna, flags or acquisition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from optimizer.search.encoding import Encoded, Floats, distances

MAIN_SHARPNESS = 2.0
"""Fall of a main effect over a whole ladder, exp(-2): neighbours on a ladder of eight are alike to 96 %."""
JITTER = 1e-8
MAX_ITERATIONS = 40


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
    lower: Floats
    alpha: Floats
    targets: Floats
    extra: Floats

    def predict(self, rows: Encoded) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the noise-free value, in the units of the data."""
        cross = self.cross(rows)
        mean = cross @ self.alpha
        half = solve_triangular(self.lower, cross.T, lower=True, check_finite=False)
        variance = np.maximum(self.prior_variance - np.sum(half**2, axis=0), 1e-12)
        return self.offset + self.scale * mean, self.scale * np.sqrt(variance)

    def cross(self, rows: Encoded) -> Floats:
        """Return the covariance of new rows with the data, standardised."""
        gap = distances(rows, self.rows)
        return _kernel(gap, self.relevance, self.main, self.interaction)[0]

    @property
    def prior_variance(self) -> float:
        """Variance of the process before any data, standardised."""
        return float(self.main * np.sum(-np.expm1(-self.relevance)) + self.interaction)

    def leave_one_out(self) -> tuple[Floats, Floats]:
        """Return mean and variance of each observation predicted from all others, in the units of the data."""
        inverse = cho_solve((self.lower, True), np.eye(len(self.rows)), check_finite=False)
        diagonal = np.diag(inverse)
        mean = self.targets - self.alpha / diagonal
        return self.offset + self.scale * mean, self.scale**2 / diagonal

    @property
    def noise_sd(self) -> float:
        """Standard deviation of one full measurement, in the units of the data."""
        return float(self.scale * np.sqrt(self.noise))


def fit(rows: Encoded, values: Floats, *, extra_variance: Floats | None = None, prior: Prior | None = None) -> Fit:
    """Fit a process by maximum a posteriori; deterministic.

    `values` are logarithms; `extra_variance` is added per observation (partial measurements), in units of `values`
    squared.
    """
    prior = prior or Prior()
    gap = distances(rows, rows)
    offset = float(np.mean(values))
    spread = float(np.std(values)) if len(values) > 2 else 0.0
    scale = max(spread, 0.05)
    targets = (values - offset) / scale
    extra = np.zeros(len(values)) if extra_variance is None else extra_variance / scale**2
    start = _prior_means(prior, gap.shape[0], scale)
    objective = _Objective(gap, targets, extra, start, _prior_sds(prior, gap.shape[0]))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_ITERATIONS})
    theta = found.x if np.all(np.isfinite(found.x)) else start
    dims = gap.shape[0]
    relevance, (main, interaction, noise) = np.exp(theta[:dims]), np.exp(theta[dims:])
    covariance = _kernel(gap, relevance, main, interaction)[0]
    covariance[np.diag_indices_from(covariance)] += noise + extra + JITTER
    lower = cholesky(covariance, lower=True, check_finite=False)
    alpha = cho_solve((lower, True), targets, check_finite=False)
    return Fit(
        rows, relevance, float(main), float(interaction), float(noise), offset, scale, lower, alpha, targets, extra
    )


def _kernel(gap: Floats, relevance: Floats, main: float, interaction: float) -> tuple[Floats, Floats]:
    """Return the covariance and its interaction part. Main effects weigh as much as their parameter is relevant."""
    square = gap**2
    weights = -np.expm1(-relevance)
    additive = np.tensordot(weights, np.exp(-MAIN_SHARPNESS * square), axes=1)
    product = interaction * np.exp(-np.tensordot(relevance, square, axes=1))
    return main * additive + product, product


class _Objective:
    """Negative log posterior of the hyperparameters with its gradient."""

    def __init__(self, gap: Floats, targets: Floats, extra: Floats, means: Floats, sds: Floats) -> None:
        dims, n, _ = gap.shape
        self.square = (gap**2).reshape(dims, n * n)
        self.effect = np.exp(-MAIN_SHARPNESS * self.square)
        self.targets, self.extra, self.means, self.sds = targets, extra, means, sds
        self.n, self.dims = n, dims

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        dims, n = self.dims, self.n
        theta = np.clip(theta, -14.0, 6.0)
        relevance, (main, interaction, noise) = np.exp(theta[:dims]), np.exp(theta[dims:])
        weights = -np.expm1(-relevance)
        additive = weights @ self.effect
        product = interaction * np.exp(-(relevance @ self.square))
        covariance = (main * additive + product).reshape(n, n)
        covariance[np.diag_indices(n)] += noise + self.extra + JITTER
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
