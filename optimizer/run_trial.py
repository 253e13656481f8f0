"""The story of one trial, top to bottom: propose, plan, launch, wait, measure, check, stop, record, tell.

Decides the order and what a failure means for the trial. How each step is done is one call away: `remote.process`,
`readiness`, `bench`, `storage`, `search`. Which trial comes next is `phases.py`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

from optimizer import deaths, evidence, readiness, trial_log
from optimizer.bench import output_check
from optimizer.bench.base import Measurement, OutputCheck
from optimizer.clock import Deadline
from optimizer.engines import silent
from optimizer.engines.base import Blame, Explanation, FlagValue, LaunchPlan, Verdict
from optimizer.errors import (
    BenchmarkFailed,
    HostError,
    LeaseLost,
    RatchetError,
    RequestsFailed,
    ServerFailed,
    Stopped,
    WrongServer,
)
from optimizer.measuring import put_under_load
from optimizer.plan import Planned, plan_server
from optimizer.readiness import Ready
from optimizer.remote import process
from optimizer.remote.base import RunningServer
from optimizer.run import StudyRun
from optimizer.search.study import result_of
from optimizer.trial_log import TrialLog
from storage.records import TrialRecord

STOP_TIMEOUT_S = 180.0
"""A stop that takes longer (TERM, KILL, GPU memory that lags tens of seconds) is not proved: a human must look."""
LAUNCH_TIMEOUT_S = 60.0
DEATH_PATIENCE_S = 5.0
"""Requests fail first, then the engine's own watchdogs end the rest of the server."""
PATIENCE, PATIENCE_S = 4.0, 120.0
"""A start may take four times the longest seen so far and two minutes more: other flags compile and capture longer."""


@dataclass(frozen=True)
class Proposal:
    """What to start next, and why. `params` are the searched parameters; empty for the baseline."""

    kind: str
    arm: str
    params: dict[str, FlagValue] = field(default_factory=dict)
    optuna_number: int | None = None
    attempt: int = 1
    incumbent: dict[str, float] | None = None
    """tok/s by prompt of the best so far: switches early ending on."""
    as_home: bool = False
    """The baseline's own configuration; a suggestion without any parameter is something else."""
    soak_s: float = 0.0
    """Seconds under load after the measurement: what a finalist must survive before it may be adopted."""


@dataclass
class Outcome:
    """How a trial ended. `state` is a trial state; the rest is what was seen on the way."""

    state: str
    ready: Ready | None = None
    measurement: Measurement | None = None
    explanation: Explanation | None = None
    check: OutputCheck | None = None


def run_trial(run: StudyRun, proposal: Proposal) -> TrialRecord:
    """Start one server, measure it, stop it with proof, and keep everything that was seen.

    Returns the finished trial: complete, pruned, infeasible (the configuration's fault) or interrupted
    (infrastructure's fault, to be asked again).

    Raises:
        Stopped, LeaseLost, HostError: the work must end or the host cannot be used; the trial is `interrupted`.
    """
    planned = plan_server(run, None if proposal.as_home else proposal.params)
    trial = trial_log.propose(run, proposal, planned)
    steps = TrialLog(run, trial)
    outcome = Outcome("interrupted")
    try:
        if planned.effective.verdict is Verdict.REJECTED:
            outcome = rejected(run, planned)
        else:
            outcome = serve_and_measure(run, proposal, planned.plan, steps)
    except ServerFailed as failure:
        outcome = failed(explained_beside_the_baseline(run, proposal, failure.explanation), proposal.attempt)
    except RequestsFailed as failure:
        outcome = failed(unexplained(run, failure, Blame.ENGINE), proposal.attempt)
    except (BenchmarkFailed, WrongServer) as failure:
        outcome = failed(unexplained(run, failure, Blame.INFRASTRUCTURE), proposal.attempt)
    finally:
        trial = steps.finish(outcome)
    tell(run, trial, outcome)
    return trial


def serve_and_measure(run: StudyRun, proposal: Proposal, plan: LaunchPlan, steps: TrialLog) -> Outcome:
    """Launch, prove ready, measure and check one server; it is stopped with proof whatever happens."""
    run.lease.check()
    with steps.phase("preflight"):
        looked = Deadline.after(LAUNCH_TIMEOUT_S)
        for warning in process.preflight(run.link, plan, run_dir=run.host.run_dir, deadline=looked):
            run.warn(warning)
    with steps.phase("launch"):
        run.server = launch(run, plan, steps)
    try:
        url, path = run.base_url()
        with steps.phase("load"):
            ready = readiness.wait_until_ready(
                run.link,
                run.server,
                plan,
                engine_name=run.engine.name,
                url=url,
                timeout_s=ready_timeout_s(run),
                check=run.lease.check,
                on_stage=steps.stage,
                on_log=steps.show_log,
            )
        try:
            measurement = put_under_load(run, proposal, plan, url, path, steps)
        except (BenchmarkFailed, ServerFailed):
            raise_if_dead(run, run.server, plan, ready, steps, patience_s=DEATH_PATIENCE_S)
            raise
        raise_if_dead(run, run.server, plan, ready, steps)
        return judged(run, proposal, ready, measurement, steps)
    finally:
        with steps.phase("stop"):
            stop(run, steps)


def launch(run: StudyRun, plan: LaunchPlan, steps: TrialLog) -> RunningServer:
    """Start the planned server under a new run id, which is stored before anything is started."""
    run_id = uuid.uuid4().hex
    steps.update(run_id=run_id, state="launching")
    return process.launch(
        run.link,
        plan,
        run_id=run_id,
        run_dir=run.host.run_dir,
        fence=run.lease.fence,
        deadline=Deadline.after(LAUNCH_TIMEOUT_S),
    )


def ready_timeout_s(run: StudyRun) -> float:
    """How long a start may take: by what this model needed on this host before, within the spec and the window."""
    left = run.lease.time_left_s()
    limit = run.spec.budget.ready_timeout_s
    seen = evidence.read(run).longest_start_s
    if seen is not None:
        limit = min(limit, PATIENCE_S + PATIENCE * seen)
    return limit if left is None else max(1.0, min(limit, left))


def raise_if_dead(
    run: StudyRun, server: RunningServer, plan: LaunchPlan, ready: Ready, steps: TrialLog, *, patience_s: float = 0.0
) -> None:
    """Raise ServerFailed when the server died under load: its log says why better than the client's errors do."""
    deaths.raise_if_dead(
        run.link, server, plan, ready.pids, engine_name=run.engine.name, read_log=steps.read_log, patience_s=patience_s
    )


def judged(run: StudyRun, proposal: Proposal, ready: Ready, measurement: Measurement, steps: TrialLog) -> Outcome:
    """Turn a measurement into an outcome: silent failures first, then the outputs, then the numbers."""
    config = steps.config
    log_text = steps.read_log().decode("utf-8", "replace")
    texts = [s.text for s in measurement.samples if s.ok]
    quiet = silent.check(run.engine.name, config, measurement.speculation, log_text, texts)
    if quiet is not None and quiet.label != "low_acceptance":
        return replace(failed(quiet, proposal.attempt), ready=ready, measurement=measurement)
    check = None
    if run.baseline_outputs and proposal.arm != "baseline":
        check = output_check.check(list(measurement.samples), run.baseline_outputs, engine=run.engine, config=config)
    state = "pruned" if measurement.ended_early else "complete"
    return Outcome(state, ready, measurement, quiet, check)


def stop(run: StudyRun, steps: TrialLog) -> None:
    """Keep the log, then stop the server and prove that nothing of it is left.

    Raises:
        NeedsAttention: it could not be proved; the study stops and nothing is looped.
        FenceRefused: a newer owner has been here; nothing was touched.
    """
    server = run.server
    if server is None:
        return
    try:
        steps.keep_log()
    finally:
        proof = process.stop(
            run.link,
            server,
            run_dir=run.host.run_dir,
            fence=run.lease.fence,
            deadline=Deadline.after(STOP_TIMEOUT_S),
        )
        run.server = None
    steps.note_stop(proof)


def rejected(run: StudyRun, planned: Planned) -> Outcome:
    """An outcome for a configuration that the engine's rules refuse: no start is spent on it."""
    reason = "; ".join(planned.effective.reasons) or "the engine's rules refuse this configuration"
    return Outcome(
        "infeasible",
        explanation=Explanation(
            "unsupported_combination",
            run.engine.name,
            reason,
            "take the combination out of the space",
            blame=Blame.CONFIG,
            confidence=0.9,
        ),
    )


def unexplained(run: StudyRun, failure: RatchetError, blame: Blame) -> Explanation:
    """Return the explanation of a failure that shows in no log."""
    return Explanation("unknown", run.engine.name, failure.message, failure.remedy, blame=blame, retry=True)


def explained_beside_the_baseline(run: StudyRun, proposal: Proposal, explanation: Explanation) -> Explanation:
    """Explain the failure of a candidate in the light of a baseline that ran on this host in this study."""
    if proposal.as_home or not evidence.read(run).complete("baseline"):
        return explanation
    return deaths.beside_a_baseline(explanation)


def failed(explanation: Explanation, attempt: int) -> Outcome:
    """An outcome for a failure.

    The configuration's fault is `infeasible` and teaches the search; everything else is `interrupted` and asked again.
    A crash of the engine itself that comes back on the second attempt belongs to the configuration as well.
    """
    repeated = explanation.blame is Blame.ENGINE and attempt >= 2
    at_fault = explanation.blame is Blame.CONFIG and not explanation.retry
    return Outcome("infeasible" if at_fault or repeated else "interrupted", explanation=explanation)


def tell(run: StudyRun, trial: TrialRecord, outcome: Outcome) -> None:
    """Tell the search what it may learn, and remember that it was told; an interrupted trial will be asked again."""
    if trial.optuna_number is None or trial.state == "interrupted":
        return
    run.search.tell(trial.optuna_number, result_of(trial))
    trial_log.mark_told(run, trial)


__all__ = ["HostError", "LeaseLost", "Outcome", "Proposal", "Stopped", "run_trial"]
