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
MAX_SUPPORT = 6.0
SINGLE = 0.5
"""Prior weight of one setting on its own against one pair: settings that always fail are rules already."""
CHANCE = 0.03
"""Least probability of failing."""


@dataclass(frozen=True)
class Feasibility:
    """What is blamed for each failed start: the start's settings, and a weight for every two of them together."""

    failed: Encoded
    blame: tuple[Floats, ...]

    def success_probability(self, rows: Encoded) -> Floats:
        """Return the probability that each row starts and survives, in 0..1."""
        survive = np.full(len(rows), 1.0 - CHANCE)
        for one, weights in zip(self.failed.codes, self.blame, strict=True):
            inside = _literals(one, rows)
            survive *= 1.0 - np.einsum("ij,ij->i", inside @ weights, inside)
        return np.asarray(np.maximum(survive, 1e-4))


def learn(failed: Encoded, labels: Sequence[str], succeeded: Encoded) -> Feasibility:
    """Weigh the possible causes of each failure by the other failures with its label and by the successes."""
    alike = {label: failed.take([j for j, other in enumerate(labels) if other == label]) for label in set(labels)}
    blame = []
    for one, label in zip(failed.codes, labels, strict=True):
        failures, successes = _literals(one, alike[label]), _literals(one, succeeded)
        weights = SUPPORT ** np.minimum(failures.T @ failures - 1.0, MAX_SUPPORT)
        weights *= CONTRADICTION ** (successes.T @ successes) * _prior(one)
        blame.append(weights / weights.sum())
    return Feasibility(failed, tuple(blame))


def _literals(one: Floats, rows: Encoded) -> Floats:
    """Which rows share each simple setting of one failed start: equal, at least, at most; shape (rows, settings)."""
    codes, ordered = rows.codes, one >= 0
    numbers, bounds = codes[:, ordered], one[ordered]
    above = numbers >= bounds - 1e-9
    below = (numbers <= bounds + 1e-9) & (numbers >= 0)
    return np.concatenate([np.abs(codes - one) < 1e-9, above, below], axis=1).astype(float)


def _prior(one: Floats) -> Floats:
    """Prior weights of pairs of settings; a setting paired with itself stands for it alone."""
    dims = len(one)
    ordered = np.flatnonzero(one >= 0)
    owner = np.concatenate([np.arange(dims), ordered, ordered])
    weights = np.where(owner[:, None] == owner[None, :], 0.0, 0.5)
    np.fill_diagonal(weights, SINGLE * dims)
    return weights
