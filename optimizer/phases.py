"""The phases of a study: take over, baseline, explore, confirm, finish. Each can be resumed from what is recorded.

Decides what is started next and when a phase is over. One trial is `run_trial.py`; who owns the host is `worker.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import structlog

from optimizer import confirm, evidence, finalists, home_server, trial_log
from optimizer.bench.baseline import check_expected
from optimizer.bench.judging import BASELINE
from optimizer.errors import RatchetError, Stopped
from optimizer.evidence import Evidence
from optimizer.run import StudyRun
from optimizer.run_trial import Proposal, run_trial
from optimizer.search.canonical import cost_sentence
from optimizer.search.policy import SpaceExhausted
from optimizer.search.study import result_of
from storage.records import TrialRecord

log = structlog.get_logger(__name__)

BASELINE_EVERY = 8
"""Explored trials between two re-measurements of the baseline (drift through a night)."""
ATTEMPTS = 3
"""How often an interrupted start is asked again before the study stops with a reason."""


class StudyFailed(RatchetError):
    """The study cannot go on; the reason is for its owner."""


class Interrupted(StudyFailed):
    """Infrastructure kept a trial from its end again and again: no result, and worth another try later."""

    retry = True


def run_study(run: StudyRun) -> None:
    """Run what is left of a study, from taking the host over to the verdict; home is not restored here.

    Raises:
        Stopped: a pause, stop or the window's end; what was recorded stays.
        StudyFailed, HostError: the study cannot go on.
    """
    run.lease.check()
    trial_log.close_unfinished(run)
    reconcile(run)
    evidence.load_baseline(run)
    home_server.take_over(run)
    measure_baseline(run)
    if not run.spec.self_test:
        explore(run)
    confirm.confirm(run, attempt)


def reconcile(run: StudyRun) -> None:
    """Bring the search in line with our rows after a stop of any kind: told what was recorded, asked what was cut.

    What other hosts of the study have under way is theirs.
    """
    records = evidence.read(run).here
    done = run.search.reconcile(records, host=run.host.name)
    for trial in records:
        if trial.number in done.renumbered:
            trial_log.set_optuna_number(run, trial, done.renumbered[trial.number])
        elif trial.optuna_number in done.told:
            trial_log.mark_told(run, trial)
        elif trial.kind == "baseline" and trial.state == "complete" and trial.optuna_number is None:
            tell_baseline(run, trial)


def enter(run: StudyRun, phase: str) -> None:
    """Record the phase a study is in."""
    run.lease.check()
    if run.study.phase != phase:
        run.update(phase=phase)
    run.say("study", phase=phase)


def measure_baseline(run: StudyRun) -> None:
    """Measure the plain server in fresh starts until there are enough, and compare with what its owner expects."""
    enter(run, "baseline")
    while len(measured := evidence.read(run).complete("baseline")) < run.spec.baseline.restarts:
        measure_baseline_once(run)
    compare_with_expectation(run, measured)


def measure_baseline_once(run: StudyRun) -> TrialRecord:
    """One more fresh start of the baseline."""
    trial = attempt(run, Proposal("baseline", BASELINE, as_home=True))
    evidence.load_baseline(run)
    if trial.optuna_number is None:
        tell_baseline(run, trial)
    return trial


def tell_baseline(run: StudyRun, trial: TrialRecord) -> None:
    """Let the search know the baseline as a measured configuration, so that it is never suggested as a new one."""
    config = run.spec.baseline_config()
    params = {name: config[name] for name in run.search.space.names if name in config}
    number = run.search.add_observation(params, result_of(trial))
    trial_log.set_optuna_number(run, trial, number)


def compare_with_expectation(run: StudyRun, measured: Sequence[TrialRecord]) -> None:
    """Warn when the measured baseline is not the one that the owner believes in."""
    tok_s = statistics.fmean(t.output_tok_s or 0.0 for t in measured)
    text = check_expected(tok_s, run.spec.baseline.expected_tok_s, run.spec.baseline.tolerance_pct)
    if text:
        run.say("warning", text=text)


def warn_of_drift(run: StudyRun) -> None:
    """Warn when the baseline's own speed changes through the night."""
    found = evidence.baseline_drift(run)
    if found is not None and found.significant:
        run.say("warning", text=found.text)


def explore(run: StudyRun) -> None:
    """Start what the search suggests until the budget ends, or nothing is left that promises a gain.

    The budget is the study's: with several hosts, what they explore counts together.
    """
    enter(run, "explore")
    say_cost(run)
    while True:
        seen = evidence.read(run)
        if is_explored(run, seen):
            return
        if seen.explored and run.search.should_stop(run.spec.min_effect):
            run.say("note", text="no start that is left promises more than the minimum effect: exploring ends")
            return
        if due_for_baseline(run, seen):
            measure_baseline_once(run)
            warn_of_drift(run)
            continue
        try:
            suggestion = run.search.ask(host=run.host.name)
        except SpaceExhausted:
            run.say("note", text="every server of this space has been measured")
            return
        trial = attempt(
            run,
            Proposal(
                "explore",
                suggestion.canonical_key,
                dict(suggestion.params),
                suggestion.number,
                incumbent=finalists.incumbent(run, seen) if run.spec.budget.early_end else None,
            ),
        )
        advice = evidence.memory_advice(run, trial)
        if advice:
            run.say("warning", text=advice)


def say_cost(run: StudyRun) -> None:
    """Tell once how large the space is and how long the planned starts will take, by the baseline's own."""
    seen = evidence.read(run)
    spans = [evidence.duration_s(t) for t in seen.complete("baseline")]
    if spans and not seen.explored:
        size = run.search.space.size_estimate(np.random.default_rng(run.spec.seed))
        run.say("note", text=cost_sentence(size, run.spec.budget.trials, statistics.fmean(spans)))


def is_explored(run: StudyRun, seen: Evidence) -> bool:
    """Say whether the budget is spent (with what other hosts are at), or the finalists are chosen already."""
    started = len(seen.explored) + len(seen.explored_elsewhere_now)
    hours = run.spec.budget.hours or float("inf")
    return started >= run.spec.budget.trials or seen.hours_spent >= hours or finalists.stored(run) is not None


def due_for_baseline(run: StudyRun, seen: Evidence) -> bool:
    """Say whether this host's baseline should be measured again before its next explored trial."""
    explored = sum(t.host == run.host.name for t in seen.explored)
    measured = len(seen.complete("baseline"))
    return explored > 0 and explored // BASELINE_EVERY > measured - run.spec.baseline.restarts


def attempt(run: StudyRun, proposal: Proposal) -> TrialRecord:
    """Run a proposal; what infrastructure interrupted is asked again, at most `ATTEMPTS` times.

    Raises:
        Interrupted: it was interrupted every time.
        StudyFailed: the failure says that the whole study must stop, or the baseline itself does not run.
    """
    current = proposal
    while True:
        run.lease.check()
        require_time(run)
        trial = run_trial(run, current)
        failure = trial.failure or {}
        if failure.get("stop_study"):
            raise StudyFailed(str(failure["summary"]), remedy=str(failure["remedy"]))
        if trial.state not in ("interrupted", "complete") and trial.arm == BASELINE:
            raise StudyFailed(
                f"the baseline cannot be measured: {failure.get('summary', trial.state)}",
                remedy=str(failure.get("remedy", "see the trial's log")),
            )
        if trial.state != "interrupted":
            return trial
        if current.attempt >= ATTEMPTS:
            raise Interrupted(
                f"interrupted {ATTEMPTS} times in a row: {failure.get('summary', 'unknown')}",
                remedy=str(failure.get("remedy", "look at the host, then resume the study")),
            )
        current = replace(current, attempt=current.attempt + 1)


def require_time(run: StudyRun) -> None:
    """Refuse to begin a trial that cannot finish, with the restore, before the window closes.

    Raises:
        Stopped: not enough time is left; the study goes on in the next window.
    """
    seen = evidence.read(run)
    run.lease.restore_reserve_s = evidence.restore_reserve_s(run, seen)
    left, needed = run.lease.time_left_s(), evidence.next_trial_s(run, seen)
    if left is not None and left < needed:
        raise Stopped(f"the window leaves {left:.0f} s before the restore, and the next trial needs {needed:.0f} s")
