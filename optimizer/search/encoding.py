"""Turns effective configurations into distances that the models understand.

Decides what "near" means for each parameter: steps on the ladder for ordered values, equal or not for everything else
(absent and special values are categories of their own).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optimizer.engines.base import FlagValue
from optimizer.search.canonical import CanonicalSpace

Floats = NDArray[np.float64]
Features = tuple[FlagValue | None, ...]


@dataclass(frozen=True)
class Encoded:
    """Rows of configurations: a place in 0..1 for ordered values, a negative number of its own for each category."""

    codes: Floats

    def __len__(self) -> int:
        return int(self.codes.shape[0])

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Encoded:
        """Return some rows."""
        return Encoded(self.codes[rows])

    def joined(self, other: Encoded) -> Encoded:
        """Return these rows followed by others."""
        return Encoded(np.concatenate([self.codes, other.codes]))

    def with_axis(self, place: float) -> Encoded:
        """Return the rows with one more ordered parameter, at one place for all (a concurrency level)."""
        return Encoded(np.column_stack([self.codes, np.full(len(self), place)]))


class Encoder:
    """Encodes the features of a space's candidates. Categories are numbered as they are first seen, per instance."""

    def __init__(self, space: CanonicalSpace) -> None:
        self.dimensions = len(space.names)
        self._axes = [_axis(space, name) for name in space.names]
        self._codes: list[dict[FlagValue | None, float]] = [{} for _ in space.names]
        self._categories = [0] * self.dimensions

    def encode(self, rows: Sequence[Features]) -> Encoded:
        """Encode rows of features."""
        codes = np.zeros((len(rows), max(1, self.dimensions)))  # one that never varies where nothing is searched
        for j, known in enumerate(self._codes):
            column = [row[j] for row in rows]
            for value in column:
                if value not in known:
                    known[value] = self._code(j, value)
            codes[:, j] = [known[value] for value in column]
        return Encoded(codes)

    def _code(self, j: int, value: FlagValue | None) -> float:
        axis = self._axes[j]
        if axis is not None and _is_number(value) and value not in axis[2]:
            return float(np.interp(float(value), axis[0], axis[1]))  # type: ignore[arg-type]
        self._categories[j] += 1
        return -float(self._categories[j])


def distances(a: Encoded, b: Encoded) -> Floats:
    """Return distances per parameter, shape (parameters, rows of a, rows of b), each in 0..1."""
    return _apart(a.codes.T[:, :, None], b.codes.T[:, None, :])


def paired_distances(a: Encoded, b: Encoded) -> Floats:
    """Return distances between rows of the same number, shape (parameters, rows)."""
    return _apart(a.codes.T, b.codes.T)


def _apart(a: Floats, b: Floats) -> Floats:
    return np.where((a >= 0) & (b >= 0), np.abs(a - b), (a != b).astype(float))


def one_hot(a: Encoded, b: Encoded) -> tuple[Floats, Floats, list[Floats]]:
    """Return which value each row has, for two sets of rows, and the distances between the values of each parameter.

    Sums of per-parameter functions of the distance are then two small matrix products instead of a loop over pairs.
    """
    left, right, tables = [], [], []
    for j in range(a.codes.shape[1]):
        values, index = np.unique(np.concatenate([a.codes[:, j], b.codes[:, j]]), return_inverse=True)
        hot = np.eye(len(values))[index]
        left.append(hot[: len(a)])
        right.append(hot[len(a) :])
        tables.append(_apart(values[:, None], values[None, :]))
    return np.hstack(left), np.hstack(right), tables


def _axis(space: CanonicalSpace, name: str) -> tuple[list[float], list[float], tuple[FlagValue, ...]] | None:
    """Values and their places in 0..1 by rank, for an ordered parameter with more than one ordered value."""
    parameter = space.parameters[name]
    if not parameter.ordered:
        return None
    plain = sorted({float(v) for v in space.values[name] if _is_number(v) and v not in parameter.special})  # type: ignore[arg-type]
    if len(plain) < 2:
        return None
    return plain, [i / (len(plain) - 1) for i in range(len(plain))], parameter.special


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
