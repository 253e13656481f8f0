"""Collects what a report tells, from stored rows, and derives the few numbers that every format shows.

Decides which trials count as baseline and what the best is; formats decide only how it looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from statistics import fmean
from typing import Any

from api.reports import launch
from optimizer.errors import NotFound
from storage import measurements, studies, trials, verdicts
from storage.engine import Database
from storage.errors import Missing
from storage.records import MeasurementRecord, StudyRecord, TrialRecord, VerdictRecord

MEASURED = ("complete", "pruned")
LIVE = ("proposed", "launching", "warming", "measuring")
BASELINE_ARM = "baseline"
NOT_JUDGED = "a win needs its answers, limits and speed under load judged as well"


@dataclass(frozen=True)
class StudyReportData:
    """Everything stored of one study that a report needs."""

    study: StudyRecord
    trials: list[TrialRecord]
    measurements: list[MeasurementRecord] = field(default_factory=list)
    verdicts: list[VerdictRecord] = field(default_factory=list)
    generated_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def baselines(self) -> list[TrialRecord]:
        """Completed starts of the original configuration, whatever they were made for."""
        return [
            t for t in self.trials if t.arm == BASELINE_ARM and t.state == "complete" and t.output_tok_s is not None
        ]

    @property
    def candidates(self) -> list[TrialRecord]:
        """Completed starts of other configurations."""
        return [
            t for t in self.trials if t.arm != BASELINE_ARM and t.state == "complete" and t.output_tok_s is not None
        ]

    @property
    def failed(self) -> list[TrialRecord]:
        """Trials that carry a failure."""
        return [t for t in self.trials if t.failure]

    @property
    def baseline_tok_s(self) -> float | None:
        """Mean over the baseline's starts; None before the first."""
        values = [t.output_tok_s for t in self.baselines if t.output_tok_s is not None]
        return fmean(values) if values else None

    @property
    def baseline_band(self) -> tuple[float, float] | None:
        """Slowest and fastest start of the baseline: what this host does by itself."""
        values = [t.output_tok_s for t in self.baselines if t.output_tok_s is not None]
        return (min(values), max(values)) if values else None

    @property
    def best(self) -> TrialRecord | None:
        """The trial that the study names as best; else the fastest complete candidate; else None."""
        named = self.study.best_trial
        if named is not None:
            found = next((t for t in self.trials if t.number == named), None)
            if found is not None:
                return found
        return max(self.candidates, key=lambda t: t.output_tok_s or 0.0, default=None)

    @property
    def best_tok_s(self) -> float | None:
        """Mean over every complete start of the best configuration: one lucky start counts little."""
        best = self.best
        if best is None:
            return None
        same = [t.output_tok_s for t in self.trials if _same(t, best) and t.output_tok_s is not None]
        return fmean(same) if same else best.output_tok_s

    @property
    def home_command(self) -> str:
        """The command of the original configuration as it was started for the comparison."""
        for trial in self.trials:
            if trial.arm == BASELINE_ARM and trial.launch_command:
                return trial.launch_command
        return launch.home_line(self.study.home)

    @property
    def changes(self) -> list[launch.Change]:
        """Flags in which the best differs from the original, read from the two commands."""
        best = self.best
        if best is None or not best.launch_command or not self.home_command:
            return []
        found = launch.diff(self.home_command, best.launch_command)
        return launch.with_gains(found, self.account.get("contributions", []))

    @property
    def account(self) -> dict[str, Any]:
        """What the search says of the winner: `contributions`, `no_effect`, `edges`; empty before a proven one."""
        found: dict[str, Any] = (self.study.verdict or {}).get("changes") or {}
        return found

    @property
    def verdict(self) -> dict[str, Any] | None:
        """The study's own verdict, else the last look at the evidence, which alone never proves anything."""
        if self.study.verdict:
            return self.study.verdict
        if not self.verdicts:
            return None
        last = self.verdicts[-1]
        not_judged = {"outcome": "undecided", "reason": NOT_JUDGED} if last.outcome == "win" else {}
        return {
            "outcome": last.outcome,
            "ratio": last.ratio,
            "ci_low": last.ci_low,
            "ci_high": last.ci_high,
            "restarts": last.restarts,
            "candidate_key": last.candidate_key,
            **not_judged,
        }

    @cached_property
    def first_baseline(self) -> TrialRecord | None:
        """The first start of the original configuration: what "changed" is told against."""
        return next((t for t in self.trials if t.arm == BASELINE_ARM), None)

    def changed_flags(self, trial: TrialRecord) -> dict[str, Any]:
        """What a trial changes of the original: the searched parameters whose value differs from the baseline's."""
        return launch.changed_parameters(trial, self.first_baseline, self.study.spec)

    def seconds_by_phase(self) -> dict[str, float]:
        """Where the night went: seconds by phase over all trials."""
        total: dict[str, float] = {}
        for trial in self.trials:
            for phase, seconds in trial.timings.items():
                if is_phase(phase) and isinstance(seconds, int | float):
                    total[phase] = total.get(phase, 0.0) + float(seconds)
        return total


def is_phase(name: str) -> bool:
    """Say whether a timing adds up with others; stages of the log lie within the load."""
    return name.endswith("_s") and not name.startswith("stage:")


def start_s(timings: Mapping[str, Any]) -> float | None:
    """Return the seconds from the launch to a server that was proved ready; None when it never was."""
    if timings.get("ready_s") is None:
        return None
    return sum(float(timings.get(name) or 0.0) for name in ("launch_s", "load_s", "ready_s"))


def _same(trial: TrialRecord, best: TrialRecord) -> bool:
    if trial.state != "complete":
        return False
    return trial.number == best.number or bool(best.canonical_key and trial.canonical_key == best.canonical_key)


def collect(db: Database, study_id: str, *, with_measurements: bool = True) -> StudyReportData:
    """Read one study (id or name) with its trials, verdicts and (they are long) measurements.

    Raises:
        NotFound: there is no such study.
    """
    with db.read() as conn:
        try:
            study = studies.get(conn, study_id)
        except Missing as error:
            raise NotFound(f"no study {study_id!r}", remedy="`ratchet study list` shows all") from error
        return StudyReportData(
            study,
            trials.list_trials(conn, study.id),
            list(measurements.for_study(conn, study.id)) if with_measurements else [],
            list(verdicts.for_study(conn, study.id)),
        )
