"""Learns from failed starts which configurations will fail too, and how surely.

Decides by a model of causes: a failure is put down to one setting or two together ("quantised cache without flash
attention", "memory fraction at least 0.9 with batch at least 64") that no success contradicts. Causes that explain
several failures, or failures with one label, weigh more; thresholds make memory limits monotone. Only failures whose
fault is the configuration belong here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.search.encoding import Encoded, Floats

CONTRADICTION = 0.02
"""Weight left to a cause that one success contradicts: some failures are luck."""
SUPPORT = 4.0
"""Factor for each further failure with the same label that a cause explains (one start in four fails by itself)."""
SINGLE = 0.5
"""Prior weight of one setting on its own against one pair: settings that always fail are rules already."""
CHANCE = 0.03
"""Least probability of failing."""


@dataclass(frozen=True)
class Feasibility:
    """Failed and successful starts, ready to answer."""

    failed: Encoded
    labels: tuple[str, ...]
    succeeded: Encoded

    def success_probability(self, rows: Encoded) -> Floats:
        """Return the probability that each row starts and survives, in 0..1."""
        survive = np.full(len(rows), 1.0 - CHANCE)
        for i in range(len(self.failed)):
            survive *= 1.0 - self._caught(i, rows)
        return np.asarray(np.maximum(survive, 1e-4))

    def _caught(self, i: int, rows: Encoded) -> Floats:
        """Probability that the cause of failure i catches each row."""
        one = self.failed.take([i])
        same = self.failed.take([j for j, label in enumerate(self.labels) if label == self.labels[i]])
        inside = _literals(one, rows)
        failures, successes = _literals(one, same), _literals(one, self.succeeded)
        support = failures.T @ failures
        against = successes.T @ successes
        weights = SUPPORT ** np.minimum(support - 1.0, 6.0) * CONTRADICTION**against
        weights *= _prior(one, weights.shape[0])
        total = weights.sum()
        if total <= 0:
            return np.zeros(len(rows))
        return np.asarray(np.sum((inside @ weights) * inside, axis=1) / total)


def learn(failed: Encoded, labels: Sequence[str], succeeded: Encoded) -> Feasibility:
    """Return the model of these starts."""
    return Feasibility(failed, tuple(labels), succeeded)


def _literals(one: Encoded, rows: Encoded) -> Floats:
    """Which rows share each simple setting of one failed start: equal, at least, at most; shape (rows, settings)."""
    p, q = rows.position, one.position[0]
    with np.errstate(invalid="ignore"):
        equal = np.where(np.isnan(q), rows.category == one.category[0], np.abs(p - q) < 1e-9)
        above = np.where(np.isnan(q), False, p >= q - 1e-9)
        below = np.where(np.isnan(q), False, p <= q + 1e-9)
    return np.concatenate([equal, above, below], axis=1).astype(float)


def _prior(one: Encoded, size: int) -> Floats:
    """Prior weights of pairs of settings; pairs on one parameter count once, through the diagonal."""
    dims = one.position.shape[1]
    weights = np.full((size, size), 0.5)
    for a in range(3):
        for b in range(3):
            block = weights[a * dims : (a + 1) * dims, b * dims : (b + 1) * dims]
            np.fill_diagonal(block, SINGLE * dims if a == b else 0.0)
    unordered = np.isnan(one.position[0])
    useless = np.concatenate([np.zeros(dims, bool), unordered, unordered])
    weights[useless, :] = 0.0
    weights[:, useless] = 0.0
    return weights
