"""What has been recorded of a study so far, read once and asked in the shapes that the phases need. No decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from optimizer.bench.base import RequestSample
from optimizer.bench.baseline import Drift, drift
from optimizer.bench.derive import blocks, geometric_mean
from optimizer.bench.judging import BASELINE, Restart
from optimizer.engines import memory_fraction
from optimizer.run import StudyRun
from optimizer.trial_log import sample_of
from storage import measurements, trials
from storage.columns import LIVE_TRIAL_STATES
from storage.records import MeasurementRecord, TrialRecord

UNKNOWN_S = 600.0
"""A careful guess for a start of a large model, before any was seen (public logs: 1 to 10 minutes)."""
STOP_RESERVE_S = 10.0
START_PHASES = ("launch_s", "load_s", "ready_s")
DONE = frozenset({"complete", "pruned", "infeasible"})


@dataclass(frozen=True)
class Evidence:
    """Every trial of a study at one moment, in order, seen from one of its hosts."""

    trials: tuple[TrialRecord, ...]
    host: str

    def on(self, host: str) -> Evidence:
        """The same, seen from another host."""
        return replace(self, host=host)

    @property
    def here(self) -> list[TrialRecord]:
        """The trials of this host."""
        return [t for t in self.trials if t.host == self.host]

    def complete(self, kind: str) -> list[TrialRecord]:
        """The complete trials of one kind on this host: speeds of two hosts are never compared."""
        return [t for t in self.here if t.kind == kind and t.state == "complete"]

    @property
    def explored(self) -> list[TrialRecord]:
        """Explored trials of every host that ended with a result (interrupted ones do not count against the budget)."""
        return [t for t in self.trials if t.kind == "explore" and t.state in DONE]

    @property
    def explored_elsewhere_now(self) -> list[TrialRecord]:
        """Explored trials that run on other hosts at this moment."""
        live = [t for t in self.trials if t.kind == "explore" and t.state in LIVE_TRIAL_STATES]
        return [t for t in live if t.host != self.host]

    @property
    def hours_spent(self) -> float:
        """Hours of trials on this host so far (waiting between windows does not count)."""
        return sum(duration_s(t) for t in self.here) / 3600.0

    @property
    def longest_trial_s(self) -> float | None:
        """The longest trial of this host so far; None before there is one."""
        return max((duration_s(t) for t in self.here if t.state in DONE), default=None)

    @property
    def home_start_s(self) -> float | None:
        """How long the plain server needs to be ready, by its own starts so far; None before anything is known."""
        return max((start_s(t) for t in self.complete("baseline")), default=None)

    @property
    def baseline_error_rate(self) -> float:
        """The largest share of requests that failed in any restart of the baseline on this host, 0..1."""
        return max((t.metrics.get("error_rate", 0.0) for t in self.complete("baseline")), default=0.0)

    @property
    def longest_start_s(self) -> float | None:
        """The longest proven start of any configuration on this host; None before there is one."""
        return max((start_s(t) for t in self.here if "ready_s" in t.timings), default=None)


def read(run: StudyRun) -> Evidence:
    """Return what is recorded now."""
    with run.db.read() as conn:
        return Evidence(tuple(trials.list_trials(conn, run.study.id)), run.host.name)


def duration_s(trial: TrialRecord) -> float:
    """Seconds between a trial's start and end; 0 while it runs."""
    if trial.started_at is None or trial.finished_at is None:
        return 0.0
    return (trial.finished_at - trial.started_at).total_seconds()


def start_s(trial: TrialRecord) -> float:
    """Seconds from the launch of a trial's server until it generated."""
    return sum(trial.timings.get(k, 0.0) for k in START_PHASES)


def measurement_of(run: StudyRun, number: int) -> MeasurementRecord | None:
    """The last measurement of a trial."""
    with run.db.read() as conn:
        found = measurements.for_trial(conn, run.study.id, number)
    return found[-1] if found else None


def samples_of(run: StudyRun, number: int) -> list[RequestSample]:
    """Return the raw requests of a trial."""
    with run.db.read() as conn:
        return [sample_of(r) for r in measurements.requests_of(conn, run.study.id, number)]


def load_baseline(run: StudyRun) -> None:
    """Fill the baseline's outputs and its current speed from what is recorded."""
    measured = read(run).complete("baseline")
    run.baseline_outputs = [samples_of(run, t.number) for t in measured]
    latest = [speed for t in measured[-run.spec.baseline.restarts :] if (speed := objective_of(run, t))]
    run.reference_tok_s = sum(latest) / len(latest) if latest else None


def objective_of(run: StudyRun, trial: TrialRecord) -> float | None:
    """Return what is maximised: the speed, or the weighted geometric mean of those at the levels that are weighed."""
    levels = run.spec.objective.levels
    speeds = {level: trial.metrics.get(f"output_tok_s@{level}") for level in levels}
    return weighted_mean(speeds, levels) if levels else trial.output_tok_s


def blocks_of(run: StudyRun, trial: TrialRecord) -> dict[str, list[float]] | None:
    """Return the verdict's blocks, tok/s by prompt; over weighed levels the same mean as of the objective."""
    record = measurement_of(run, trial.number)
    levels = run.spec.objective.levels
    if record is None or not levels:
        return record.tok_s if record else None
    samples = samples_of(run, trial.number)
    found = {level: blocks([s for s in samples if s.concurrency == level]) for level in levels}
    means = {p: {k: geometric_mean(by.get(p, ())) for k, by in found.items()} for p in record.tok_s}
    return {p: [mean] for p, speeds in means.items() if (mean := weighted_mean(speeds, levels))}


def weighted_mean(values: Mapping[int, float | None], weights: Mapping[int, float]) -> float | None:
    """Return the weighted geometric mean; None where a value is missing."""
    known = {k: v for k, v in values.items() if v}
    if set(known) != set(weights):
        return None
    return math.exp(sum(w * math.log(known[k]) for k, w in weights.items()) / sum(weights.values()))


def baseline_restarts(run: StudyRun, seen: Evidence) -> list[Restart]:
    """The baseline's restarts before the confirmation: they show how much starts scatter on its host."""
    measured = [blocks_of(run, t) for t in seen.complete("baseline")]
    return [Restart(BASELINE, tok_s) for tok_s in measured if tok_s]


def baseline_drift(run: StudyRun) -> Drift | None:
    """How the baseline's speed went through the night, all its restarts together."""
    same = [t for t in read(run).here if t.arm == BASELINE and t.state == "complete" and t.started_at is not None]
    timed = [(t.started_at.timestamp() / 3600, speed) for t in same if t.started_at and (speed := objective_of(run, t))]
    return drift([hour for hour, _ in timed], [speed for _, speed in timed])


def next_trial_s(run: StudyRun, seen: Evidence) -> float:
    """How long the next trial may take: the longest so far; before anything is known, half of a window at most."""
    longest = seen.longest_trial_s
    return longest if longest is not None else min(UNKNOWN_S, 0.5 * (run.lease.window_s or UNKNOWN_S))


def restore_reserve_s(run: StudyRun, seen: Evidence) -> float:
    """Seconds to keep free for putting home back: twice its start and a stop; a quarter of a window when unknown."""
    if seen.home_start_s is None:
        return min(UNKNOWN_S, 0.25 * (run.lease.window_s or UNKNOWN_S))
    return 2 * seen.home_start_s + STOP_RESERVE_S


def memory_advice(run: StudyRun, trial: TrialRecord) -> str:
    """Say so when the failures of one configuration leave no memory fraction that can work, and what can instead."""
    flag = memory_fraction.FLAG.get(run.spec.engine)
    if trial.state != "infeasible" or flag is None or flag not in trial.effective:
        return ""
    rest = {k: v for k, v in trial.effective.items() if k != flag}
    failed = [t for t in read(run).trials if t.failure and flag in t.effective]
    same = [t for t in failed if {k: v for k, v in t.effective.items() if k != flag} == rest]
    failures = [(float(t.effective[flag]), str((t.failure or {})["label"])) for t in same]
    interval = memory_fraction.memory_interval(run.spec.engine, failures, rest)
    if interval is None or not interval.empty:
        return ""
    tried = ", ".join(f"{f:g}" for f in sorted(f for f, _ in failures))
    return f"no {flag} can work for this configuration (tried {tried}): {'; '.join(interval.advice)}"
