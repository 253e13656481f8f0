"""How much each searched parameter explains of the differences in speed.

A plain analysis of variance over the complete explored starts, one parameter at a time, corrected for the number of
groups (epsilon squared) so that a parameter with many values does not look important by chance. It needs no model and
says nothing about interactions; what the winner's own changes brought is the search's account of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from storage.records import TrialRecord

MIN_TRIALS = 8
"""Below this a share of variance is noise."""
BINS = 4
NOTE = "share of the variance of tok/s that one parameter explains alone, over {count} complete starts"
TOO_FEW = "not enough complete starts yet: {count} of {needed}"


def importance(candidates: Sequence[TrialRecord]) -> dict[str, Any]:
    """Return shares by parameter (they sum to 1), the number of trials, and how to read them."""
    measured = [t for t in candidates if t.kind == "explore" and t.output_tok_s is not None]
    count = len(measured)
    if count < MIN_TRIALS:
        return {"importance": {}, "trials": count, "note": TOO_FEW.format(count=count, needed=MIN_TRIALS)}
    names = sorted({name for t in measured for name in t.params})
    raw = {name: _explained(measured, name) for name in names}
    total = sum(raw.values())
    shares = {n: round(v / total, 4) for n, v in sorted(raw.items(), key=lambda p: -p[1])} if total > 0 else {}
    return {"importance": shares, "trials": count, "note": NOTE.format(count=count)}


def _explained(measured: Sequence[TrialRecord], name: str) -> float:
    groups: dict[Any, list[float]] = {}
    for key, trial in zip(_keys(measured, name), measured, strict=True):
        groups.setdefault(key, []).append(trial.output_tok_s or 0.0)
    values = [v for group in groups.values() for v in group]
    mean = fmean(values)
    whole = sum((v - mean) ** 2 for v in values)
    count, kinds = len(values), len(groups)
    if whole <= 0 or kinds < 2 or count <= kinds:
        return 0.0
    within = sum((v - fmean(group)) ** 2 for group in groups.values() for v in group)
    return max(0.0, 1.0 - (within / (count - kinds)) / (whole / (count - 1)))


def _keys(measured: Sequence[TrialRecord], name: str) -> list[Any]:
    """Group by value; numbers with many values by quarters of their range's ranks."""
    values = [t.params.get(name) for t in measured]
    numbers = sorted({v for v in values if isinstance(v, int | float) and not isinstance(v, bool)})
    if len(numbers) <= 2 * BINS:
        return [repr(v) for v in values]
    rank = {v: i * BINS // len(numbers) for i, v in enumerate(numbers)}
    return [rank.get(v, repr(v)) if isinstance(v, int | float) else repr(v) for v in values]
