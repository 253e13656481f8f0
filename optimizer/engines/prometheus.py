"""Differences of Prometheus counters between two scrapes. Decides how text is read, not which names matter."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(\{[^\n]*\})?\s+([-+]?[\w.+-]+)(?:\s+-?\d+)?\s*$")


def parse(text: str) -> dict[str, float]:
    """Return every metric summed over its labels (ranks, models, processes); damaged lines are left out."""
    totals: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        found = _SAMPLE.match(line)
        if found is None:
            continue
        try:
            value = float(found.group(3))
        except ValueError:
            continue
        if math.isfinite(value):
            totals[found.group(1)] = totals.get(found.group(1), 0.0) + value
    return totals


def difference(before: Mapping[str, float], after: Mapping[str, float], name: str) -> float | None:
    """Return how far a counter moved, with or without the suffix `_total`.

    None when the counter is missing afterwards or ran backwards (the server was restarted in between).
    """
    for spelling in (name, f"{name}_total", name.removesuffix("_total")):
        if spelling in after:
            moved = after[spelling] - before.get(spelling, 0.0)
            return moved if moved >= 0 else None
    return None
