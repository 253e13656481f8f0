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
    """Rows of configurations: `position` in 0..1 for ordered values (else NaN), `category` for others (else -1)."""

    position: Floats
    category: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.position.shape[0])

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Encoded:
        """Return some rows."""
        return Encoded(self.position[rows], self.category[rows])


class Encoder:
    """Encodes the features of a space's candidates. Categories are numbered as they are first seen, per instance."""

    def __init__(self, space: CanonicalSpace) -> None:
        self.dimensions = len(space.names)
        self._axes = [_axis(space, name) for name in space.names]
        self._categories: list[dict[str, int]] = [{} for _ in space.names]

    def encode(self, rows: Sequence[Features]) -> Encoded:
        """Encode rows of features."""
        position = np.full((len(rows), self.dimensions), np.nan)
        category = np.full((len(rows), self.dimensions), -1, dtype=np.int64)
        for j, axis in enumerate(self._axes):
            known = self._categories[j]
            for i, row in enumerate(rows):
                value = row[j]
                if axis is not None and _is_number(value) and value not in axis[2]:
                    position[i, j] = np.interp(float(value), axis[0], axis[1])  # type: ignore[arg-type]
                else:
                    category[i, j] = known.setdefault(repr(value), len(known))
        return Encoded(position, category)


def distances(a: Encoded, b: Encoded) -> Floats:
    """Return distances per parameter, shape (parameters, rows of a, rows of b), each in 0..1."""
    pa, pb = a.position.T[:, :, None], b.position.T[:, None, :]
    ca, cb = a.category.T[:, :, None], b.category.T[:, None, :]
    apart = np.abs(pa - pb)
    return np.where(np.isnan(apart), (ca != cb).astype(float), apart)


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
