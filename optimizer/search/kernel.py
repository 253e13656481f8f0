"""How alike two configurations are believed to be: the covariance of the Gaussian process, and its hyperparameters.

Decides what may vary together: every flag by itself, every two flags together, anything at all, and what only the one
configuration has. Each flag has one relevance, shared by all of these. How hyperparameters are found is `gp.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from optimizer.search.encoding import Encoded, Floats, distances, one_hot, paired_distances

SHARPNESS = 2.0
"""Fall of an effect over a whole ladder, exp(-2): neighbours on a ladder of eight are alike to 96 %."""
AMPLITUDES = ("main", "pairs", "anything", "own")


@dataclass(frozen=True)
class Kernel:
    """Hyperparameters of the covariance, for standardised data.

    `main` weighs the sum of effects z of single flags, `pairs` the sum of all z_i z_j, `anything` one term over all
    flags at once, `own` the deviation that a configuration shares with nothing but its repeats.
    """

    relevance: Floats
    main: float
    pairs: float
    anything: float
    own: float

    def between(self, a: Encoded, b: Encoded) -> Floats:
        """Return the covariance of all rows of a with all rows of b, by products of one-hot rows."""
        left, right, tables = one_hot(a, b)
        weights = -np.expm1(-self.relevance)
        effects = [w * np.exp(-SHARPNESS * t**2) for w, t in zip(weights, tables, strict=True)]
        single = _product(left, effects, right)
        squares = _product(left, [e**2 for e in effects], right) if self.pairs else 0.0
        exponent = _product(left, [r * t**2 for r, t in zip(self.relevance, tables, strict=True)], right)
        return self._combined(single, squares, exponent)

    def paired(self, a: Encoded, b: Encoded) -> Floats:
        """Return the covariance of rows of the same number."""
        square = paired_distances(a, b) ** 2
        effects = -np.expm1(-self.relevance)[:, None] * np.exp(-SHARPNESS * square)
        return self._combined(effects.sum(axis=0), (effects**2).sum(axis=0), self.relevance @ square)

    def _combined(self, single: Floats, squares: Floats | float, exponent: Floats) -> Floats:
        covariance = self.main * single + self.anything * np.exp(-exponent) + self.own * (exponent <= 0.0)
        if self.pairs:
            covariance += 0.5 * self.pairs * (single**2 - squares)
        return np.asarray(covariance)


def _product(left: Floats, tables: Sequence[Floats], right: Floats) -> Floats:
    return np.asarray(left @ (block_diag(*tables) @ right.T))


class Sensitivities:
    """The covariance of one set of rows with itself, and how it answers to each hyperparameter; all rows flattened."""

    def __init__(self, rows: Encoded) -> None:
        self.square = distances(rows, rows) ** 2
        self.square = self.square.reshape(len(self.square), -1)
        self.effect = np.exp(-SHARPNESS * self.square)
        self.effect_square = self.effect**2
        self.same = (self.square.sum(axis=0) == 0.0).astype(float)

    def covariance(self, kernel: Kernel) -> Floats:
        """Return the covariance, remembering its parts for `gradient`."""
        self.weights = -np.expm1(-kernel.relevance)
        self.single = self.weights @ self.effect
        self.double = 0.5 * (self.single**2 - self.weights**2 @ self.effect_square)
        self.product = np.exp(-(kernel.relevance @ self.square))
        terms = (self.single, self.double, self.product, self.same)
        amplitudes = (kernel.main, kernel.pairs, kernel.anything, kernel.own)
        return np.asarray(sum(a * term for a, term in zip(amplitudes, terms, strict=True)))

    def gradient(self, kernel: Kernel, flat: Floats) -> Floats:
        """Return the derivatives of sum(flat * covariance) by the logarithms of relevances and amplitudes."""
        by_weight = self.effect @ (flat * (kernel.main + kernel.pairs * self.single))
        by_weight -= kernel.pairs * self.weights * (self.effect_square @ flat)
        by_relevance = by_weight * np.exp(-kernel.relevance) - self.square @ (flat * (kernel.anything * self.product))
        terms = (self.single, self.double, self.product, self.same)
        amplitudes = (kernel.main, kernel.pairs, kernel.anything, kernel.own)
        by_amplitude = [a * (flat @ term) for a, term in zip(amplitudes, terms, strict=True)]
        return np.concatenate([kernel.relevance * by_relevance, by_amplitude])
