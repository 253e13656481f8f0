"""What a trial gave, and how that looks in an Optuna study.

Decides the nouns of ask and tell, the attributes and states that plain Optuna sees, and what a record of ours means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from optuna.trial import TrialState

from optimizer.engines.base import FlagValue


class Outcome(StrEnum):
    """How a trial ended, as far as the search is concerned."""

    COMPLETE = "complete"
    PRUNED = "pruned"
    """Ended early because it could not win; its value is what was measured until then."""
    INFEASIBLE = "infeasible"
    """Failed by its own fault; teaches the search."""
    INFRASTRUCTURE = "failed-infrastructure"
    """Failed by the fault of host or network; teaches nothing and may be asked again."""


@dataclass(frozen=True)
class Suggestion:
    """One server to start. `params` are the searched values as asked, `config` what will run."""

    optuna_number: int
    params: dict[str, FlagValue]
    config: dict[str, FlagValue]
    canonical_key: str

    @property
    def number(self) -> int:
        """The trial's number in the Optuna study."""
        return self.optuna_number


@dataclass(frozen=True)
class Result:
    """What came of a suggestion. `value` is the objective (tok/s), None when nothing was measured."""

    value: float | None
    state: Outcome | str = Outcome.COMPLETE
    accept_len: float | None = None
    step_ms: float | None = None
    failure: str = ""
    """A label of `explain`, for infeasible and infrastructure."""
    partial: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    host: str = ""
    reference_tok_s: float | None = None
    """The baseline on this host at this time, interpolated between its measurements."""
    ready_s: float | None = None
    bench_s: float | None = None
    trial_number: int | None = None
    """Number in Ratchet's own tables."""
    launch_command: str = ""


@dataclass(frozen=True)
class Reconciled:
    """What `reconcile` did: Optuna numbers told from our records, closed and queued again, added anew."""

    told: tuple[int, ...] = ()
    requeued: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    renumbered: Mapping[int, int] = field(default_factory=dict)
    """By number of our trial: its new Optuna number, for those that Optuna had lost."""


class RecordedTrial(Protocol):
    """The fields of a trial record that reconciling reads (`storage.records.TrialRecord` has them)."""

    @property
    def number(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def params(self) -> dict[str, Any]: ...
    @property
    def output_tok_s(self) -> float | None: ...
    @property
    def accept_len(self) -> float | None: ...
    @property
    def step_ms(self) -> float | None: ...
    @property
    def metrics(self) -> dict[str, float]: ...
    @property
    def failure(self) -> dict[str, Any] | None: ...
    @property
    def timings(self) -> dict[str, float]: ...
    @property
    def host(self) -> str: ...
    @property
    def launch_command(self) -> str: ...
    @property
    def optuna_number(self) -> int | None: ...


ENDED = {"complete", "pruned", "infeasible"}


def result_of(record: RecordedTrial) -> Result:
    """Return the result that a record of ours stands for."""
    timings = record.timings
    ready = [timings[k] for k in ("launch_s", "load_s", "ready_s") if k in timings]
    return Result(
        value=record.output_tok_s,
        state=record.state if record.state in ENDED else Outcome.INFRASTRUCTURE,
        accept_len=record.accept_len,
        step_ms=record.step_ms,
        failure=str((record.failure or {}).get("label") or ""),
        partial=record.state == "pruned",
        metrics=record.metrics,
        host=record.host,
        reference_tok_s=record.metrics.get("reference_tok_s"),
        ready_s=sum(ready) if ready else None,
        bench_s=timings.get("measure_s"),
        trial_number=record.number,
        launch_command=record.launch_command,
    )


def optuna_state(result: Result) -> tuple[TrialState, float | None]:
    """Infeasible is pruned, which TPE ranks last (it never sees failed trials); infrastructure is failed."""
    state = Outcome(result.state)
    if state is Outcome.COMPLETE:
        good = result.value is not None and result.value > 0
        return (TrialState.COMPLETE, result.value) if good else (TrialState.FAIL, None)
    return (TrialState.FAIL if state is Outcome.INFRASTRUCTURE else TrialState.PRUNED), None


def attributes_of(result: Result) -> dict[str, Any]:
    """Return the user attributes that a trial carries in Optuna."""
    state = Outcome(result.state)
    found: dict[str, Any] = {
        "outcome": str(state),
        "accept_len": result.accept_len,
        "step_ms": result.step_ms,
        "failure": result.failure or ("unknown" if state is Outcome.INFEASIBLE else ""),
        "partial": (result.partial or state is Outcome.PRUNED) or None,
        "metrics": dict(result.metrics) or None,
        "host": result.host,
        "reference_tok_s": result.reference_tok_s,
        "ready_s": result.ready_s,
        "bench_s": result.bench_s,
        "trial_number": result.trial_number,
        "launch_command": result.launch_command,
    }
    return {k: v for k, v in found.items() if v is not None and v != ""}
