"""Who is confirmed: the best of what was explored, chosen once for all hosts of a study; and the mark to beat before.

Decides what may win at all: faster than home by what the model believes, its limits kept, its answers those of home.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from optimizer import evidence, several
from optimizer.bench.base import Outcome
from optimizer.engines.base import FlagValue
from optimizer.evidence import Evidence
from optimizer.run import StudyRun
from storage import studies
from storage.records import TrialRecord

SELF_TEST = "self-test"
"""The arm of an A/A test: the baseline's own configuration under another name."""


@dataclass(frozen=True)
class Finalist:
    """A configuration that is worth confirming: what the model believes of it, and the trial that found it."""

    key: str
    params: dict[str, FlagValue]
    mean_tok_s: float
    trial: int


def agreed(run: StudyRun) -> list[Finalist]:
    """Return who is confirmed, on every host the same: as stored, or chosen once nobody explores any more."""
    known = stored(run)
    if known is not None:
        return known
    while several.explores_elsewhere(run, evidence.read(run)):
        several.wait(run)
    return remember(run, choose(run))


def stored(run: StudyRun) -> list[Finalist] | None:
    """Return the finalists once they are chosen, by whichever host; None before."""
    with run.db.read() as conn:
        return _in(studies.get(conn, run.study.id).verdict)


def _in(document: Mapping[str, Any] | None) -> list[Finalist] | None:
    rows = (document or {}).get("finalists")
    return None if rows is None else [Finalist(**row) for row in rows]


def remember(run: StudyRun, chosen: Sequence[Finalist]) -> list[Finalist]:
    """Store who is being confirmed, so that a restart goes on with the same ones; those of another host stand."""
    with run.db.write() as conn:
        known = _in(studies.get(conn, run.study.id).verdict)
        if known is None:
            document = {"outcome": str(Outcome.UNDECIDED), "finalists": [asdict(f) for f in chosen]}
            studies.update(conn, run.study.id, verdict=document)
    return list(chosen) if known is None else known


def choose(run: StudyRun) -> list[Finalist]:
    """Return the best configurations by posterior that beat the baseline so far, with outputs and limits in order."""
    seen = evidence.read(run)
    if run.spec.self_test:
        first = seen.complete("baseline")[0]
        return [Finalist(SELF_TEST, {}, first.output_tok_s or 0.0, first.number)]
    by_key = {t.arm: t for t in seen.explored if t.state == "complete"}
    reference = several.reference_tok_s(run, seen)
    chosen: list[Finalist] = []
    for ranked in run.search.top(len(by_key) + 1):
        trial = by_key.get(ranked.canonical_key)
        if trial is None or ranked.mean <= reference or not may_win(run, seen, trial):
            continue
        chosen.append(Finalist(ranked.canonical_key, dict(trial.params), ranked.mean, trial.number))
        if len(chosen) == run.spec.budget.candidates:
            break
    return chosen


def may_win(run: StudyRun, seen: Evidence, trial: TrialRecord) -> bool:
    """Say whether a measured trial kept the objective's limits and its outputs are the baseline's."""
    if trial.output_check is not None and not trial.output_check["ok"]:
        return False
    return not broken_limits(run, seen.on(trial.host), trial.metrics)


def incumbent(run: StudyRun, seen: Evidence) -> dict[str, float] | None:
    """tok/s by prompt of the best on this host that may win, or of the baseline: the mark for early ending.

    Each is taken relative to the baseline of its own time and brought to the speed of now: on a host that has become
    slower since, the old figures would end every later measurement. None where other levels than the first count too:
    losing there proves nothing about them.
    """
    if run.spec.objective.levels:
        return None
    able = [t for t in seen.complete("explore") if may_win(run, seen, t)]
    trusted = [t for t in (*seen.complete("baseline"), *able) if t.output_tok_s]
    if not trusted:
        return None
    best = max(trusted, key=lambda t: (t.output_tok_s or 0.0) / _reference_of(t))
    record = evidence.measurement_of(run, best.number)
    if record is None:
        return None
    drifted = (run.reference_tok_s or 1.0) / _reference_of(best) if run.reference_tok_s else 1.0
    return {prompt: drifted * sum(values) / len(values) for prompt, values in record.tok_s.items() if values}


def _reference_of(trial: TrialRecord) -> float:
    """The baseline's speed at the time of a trial; a baseline's own speed is its reference."""
    own = trial.output_tok_s or 1.0
    return own if trial.kind == "baseline" else float(trial.metrics.get("reference_tok_s") or own)


def broken_limits(run: StudyRun, seen: Evidence, metrics: Mapping[str, float]) -> list[str]:
    """Return the limits of the objective that these metrics of one host miss; a missing metric misses its limit.

    Where the objective says nothing of errors, a candidate may fail no larger share of requests than home does: what
    failed is in no average, so the prompts that a server cannot answer would make it look faster.
    """
    broken = []
    errors, usual = metrics.get("error_rate", 0.0), seen.baseline_error_rate
    if "error_rate" not in run.spec.objective.subject_to and errors > usual:
        broken.append(f"{errors:.0%} of its requests failed, and {usual:.0%} of home's")
    for name, limit in run.spec.objective.subject_to.items():
        value = metrics.get(name)
        if value is None:
            broken.append(f"{name} was not measured")
        elif limit.max is not None and value > limit.max:
            broken.append(f"{name} {value:g} is above {limit.max:g}")
        elif limit.min is not None and value < limit.min:
            broken.append(f"{name} {value:g} is below {limit.min:g}")
    return broken
