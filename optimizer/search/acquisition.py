"""Which candidate is worth a start: expected improvement, and the maximum of a score that survival may only lower.

Pure numbers; what is scored and why is `policy.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from optimizer.search.encoding import Floats

CHUNK = 256
"""Rows whose survival is asked for at once."""

Survival = Callable[[NDArray[np.int64]], Floats]
"""Probability (0..1) that the rows of these numbers start and survive."""


def log_expected_gain(mean: Floats, sd: Floats, best: float) -> Floats:
    """Return the logarithm of the expected improvement over `best`, stable far below it."""
    z = (mean - best) / sd
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    direct = density + z * ndtr(z)
    tail = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - 2 * np.log(np.maximum(np.abs(z), 1.0))
    return np.asarray(np.log(sd) + np.where(z > -6, np.log(np.maximum(direct, 1e-300)), tail))


def most_promising(score: Floats, survival: Survival) -> tuple[int, float]:
    """Return the row with the largest score plus log survival, and that sum; exact, the first of equals.

    Survival can only lower a score, so rows are asked in the order of their scores until none can be better.
    """
    order = np.argsort(-score, kind="stable")
    best, found = -np.inf, int(order[0])
    for at in range(0, len(order), CHUNK):
        rows = order[at : at + CHUNK]
        if score[rows[0]] <= best:
            break
        sums = score[rows] + np.log(survival(rows))
        top = int(np.argmax(sums))
        if sums[top] > best:
            best, found = float(sums[top]), int(rows[top])
    return found, best
