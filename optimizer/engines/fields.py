"""Picks `name: value` pairs out of a record, each by its own pattern and never by position.

Decides how one value is found in damaged text; leaves which names exist to the engine packages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from optimizer.engines.numbers import NUMBER, as_float, as_int, fraction

Record = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """One value: the record's key, the pattern whose first group holds it, and how it is read."""

    key: str
    pattern: re.Pattern[str]
    read: Callable[[str], Any]


def number(key: str, label: str) -> Field:
    """A decimal number after `label` and a colon."""
    return Field(key, re.compile(rf"{label}\s*[:=]\s*({NUMBER})"), as_float)


def whole(key: str, label: str) -> Field:
    """A whole number after `label` and a colon."""
    return Field(key, re.compile(rf"{label}\s*[:=]\s*(\d+(?:,\d{{3}})*)(?!\.?\d|,\d)"), as_int)


def truth(key: str, label: str) -> Field:
    """`True` or `False` after `label` and a colon."""
    pattern = re.compile(rf"{label}\s*[:=]\s*([Tt]rue|[Ff]alse)\b")
    return Field(key, pattern, lambda text: text.lower() == "true")


def rate(key: str, label: str) -> Field:
    """A share as 0..1, printed either so or as a percentage."""
    return Field(key, re.compile(rf"{label}\s*[:=]\s*({NUMBER}\s*%?)"), as_rate)


def as_rate(text: str) -> float | None:
    """Read `0.54` or `54%` as 0.54."""
    value = as_float(text.rstrip("% \t"))
    if value is None:
        return None
    return fraction(value) if text.rstrip().endswith("%") else value


def pick(text: str, fields: Iterable[Field]) -> Record:
    """Return the values that `text` carries; a value that cannot be read is left out."""
    record: Record = {}
    for field in fields:
        found = field.pattern.search(text)
        if found is None:
            continue
        value = field.read(found.group(1))
        if value is not None:
            record[field.key] = value
    return record


def summarise(values: Iterable[float]) -> dict[str, float | int]:
    """Return mean, median, extremes and count of some values; empty when there are none."""
    numbers = list(values)
    if not numbers:
        return {}
    return {
        "mean": round(fmean(numbers), 4),
        "median": round(median(numbers), 4),
        "min": min(numbers),
        "max": max(numbers),
        "samples": len(numbers),
    }


def count_kinds(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count records by kind."""
    counts: dict[str, int] = {}
    for record in records:
        counts[record["kind"]] = counts.get(record["kind"], 0) + 1
    return counts
