"""Reads what has happened so far out of Optuna's trials: the sampler's only memory.

Decides which trials teach what (complete, partial, infeasible, pending, or nothing) and under which attribute names.
The same trials give the same history, whoever runs it and after whatever restart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from optimizer.engines.base import FlagValue
from optimizer.search.canonical import Candidate, CanonicalSpace

INFEASIBLE = "infeasible"
"""`outcome` of a start that failed through its own configuration."""
INFRASTRUCTURE = "failed-infrastructure"
"""`outcome` of a start that host or network cut off."""


@dataclass(frozen=True)
class Observation:
    """One trial as the models see it. `kind` is complete, partial, infeasible or pending."""

    kind: str
    params: dict[str, FlagValue]
    features: tuple[FlagValue | None, ...]
    key: str
    value: float | None = None
    """Objective as measured; above 0 for complete and partial trials."""
    reference: float | None = None
    """What the baseline gave on this host at this time."""
    accept_len: float | None = None
    label: str = ""
    host: str = ""
    cost_s: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)


def read(trials: Sequence[FrozenTrial], space: CanonicalSpace) -> list[Observation]:
    """Return the observations in the order of the trials; interrupted and lost ones teach nothing and are left out."""
    found = []
    for trial in trials:
        kind = _kind(trial)
        if kind is not None:
            found.append(_observation(trial, kind, space))
    return found


def asked(trial: FrozenTrial) -> dict[str, Any]:
    """Return what a trial asked for: its parameters, or the attribute that keeps values outside the space."""
    outside = trial.user_attrs.get("params") or trial.system_attrs.get("fixed_params")
    return dict(outside) if isinstance(outside, Mapping) and not trial.params else dict(trial.params)


def _kind(trial: FrozenTrial) -> str | None:
    attrs = trial.user_attrs
    if trial.state in (TrialState.RUNNING, TrialState.WAITING):
        return "pending"
    if trial.state is TrialState.COMPLETE:
        value = trial.values[0] if trial.values else None
        if value is not None and math.isfinite(value) and value > 0:
            return "partial" if attrs.get("partial") else "complete"
    if attrs.get("outcome") == INFEASIBLE or (trial.state is TrialState.PRUNED and attrs.get("failure")):
        return INFEASIBLE
    if trial.state is TrialState.PRUNED and _partial_value(trial) is not None:
        return "partial"
    if "outcome" not in attrs:
        return INFEASIBLE if trial.state is TrialState.FAIL and trial.params else None
    # What ended by itself without a speed is as good as failed: left out, it would be proposed again for ever.
    return None if attrs["outcome"] == INFRASTRUCTURE else INFEASIBLE


def _partial_value(trial: FrozenTrial) -> float | None:
    value = trial.intermediate_values[trial.last_step] if trial.last_step is not None else None
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _observation(trial: FrozenTrial, kind: str, space: CanonicalSpace) -> Observation:
    params = asked(trial)
    candidate = space.check(params).candidate
    config = space.normalise(params) if candidate is None else candidate.params
    attrs = trial.user_attrs
    value = None
    if trial.state is TrialState.COMPLETE and kind != INFEASIBLE:
        value = trial.values[0] if trial.values else None
    elif kind == "partial":
        value = _partial_value(trial)
    metrics = attrs.get("metrics")
    costs = [c for name in ("ready_s", "bench_s") if (c := _number(attrs.get(name))) is not None]
    return Observation(
        kind=kind,
        params=config,
        features=tuple(config.get(n) for n in space.names) if candidate is None else candidate.features,
        key=str(attrs.get("canonical_key") or (candidate.key if candidate else "")) or _raw_key(config),
        value=value,
        reference=_number(attrs.get("reference_tok_s")),
        accept_len=_number(attrs.get("accept_len")),
        label=str(attrs.get("failure") or ""),
        host=str(attrs.get("host") or ""),
        cost_s=sum(costs) if costs else None,
        metrics=_finite(metrics) if isinstance(metrics, Mapping) else {},
    )


def _number(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    return float(value) if good else None  # type: ignore[arg-type]


def _finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What is no number (our tables keep NaN as null) was not measured: a model of it would never come to an end."""
    return {str(k): float(v) for k, v in metrics.items() if v is not None and math.isfinite(v)}


def _raw_key(config: Mapping[str, FlagValue]) -> str:
    return "raw:" + repr(sorted(config.items()))


def measured_keys(history: Sequence[Observation]) -> set[str]:
    """Return the keys that need no further start: measured, failed by their own fault, or under way."""
    return {o.key for o in history}


__all__ = ["INFEASIBLE", "Candidate", "Observation", "asked", "measured_keys", "read"]
