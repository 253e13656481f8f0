"""The measurement of one running server: its benchmark, the load that a finalist must stand, and what it died of.

Decides whose fault a measurement is that could not be made. How it is made is `bench.measure`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from optimizer import readiness
from optimizer.bench import measure, soak
from optimizer.bench.base import Measurement
from optimizer.clock import Deadline
from optimizer.engines.base import Blame, Explanation, LaunchPlan
from optimizer.errors import BenchmarkFailed, RatchetError, RequestsFailed, ServerFailed
from optimizer.host_watch import HostWatch
from optimizer.remote import process
from optimizer.remote.base import RunningServer
from optimizer.run import StudyRun
from optimizer.trial_log import TrialLog

if TYPE_CHECKING:
    from optimizer.run_trial import Proposal

DEATH_S, DEATH_POLL_S = 5.0, 0.5
"""Requests of a dying server fail first; its processes and its log end a few seconds later."""


def measured(
    run: StudyRun, proposal: Proposal, plan: LaunchPlan, steps: TrialLog, *, url: str, path: str
) -> Measurement:
    """Measure the running server, and hold it under load where the proposal asks for it.

    Raises:
        ServerFailed: it died meanwhile, or did not stand the load.
        RequestsFailed: it lives, and failed too many requests or did not end them in time.
        BenchmarkFailed: the measurement is void for no fault of the server.
    """
    assert run.server is not None
    watch = HostWatch(run, run.server)
    try:
        with steps.phase("measure"), steady(run, path):
            seen = measure.measure(
                url,
                engine=run.engine,
                model=plan.served_model,
                workload=run.workload,
                path=path,
                incumbent=proposal.incumbent,
                deadline=Deadline.after(run.spec.budget.measure_timeout_s),
                cancelled=run.lease.cancelled,
                machine=watch,
            )
            seen = watch.complete(seen)
        run.lease.check()
        if proposal.soak_s > 0:
            with steps.phase("soak"), steady(run, path):
                seen = soak_under_load(run, plan, url, seen, proposal.soak_s)
    except (RequestsFailed, ServerFailed):
        raise_if_dead(run, run.server, plan, within_s=DEATH_S)
        raise
    raise_if_dead(run, run.server, plan)
    return seen


@contextlib.contextmanager
def steady(run: StudyRun, path: str) -> Iterator[None]:
    """Void what is measured through a tunnel while the connection breaks or stalls: neither speed nor failures count.

    Raises:
        BenchmarkFailed: it did.
    """
    before = run.link.disturbances
    failure: RatchetError | None = None
    try:
        yield
    except (BenchmarkFailed, ServerFailed) as error:
        failure = error
    if path == "tunnel" and run.link.disturbances != before:
        raise BenchmarkFailed(
            f"the SSH connection to {run.host.name} broke or stalled while it was measured through",
            remedy="it is measured again; where the port can be reached, `http: {reach: direct}` needs no tunnel",
        ) from failure
    if failure is not None:
        raise failure


def soak_under_load(run: StudyRun, plan: LaunchPlan, url: str, measurement: Measurement, soak_s: float) -> Measurement:
    """Hold the measured server under load; return the measurement with what the soak showed.

    Raises:
        ServerFailed: requests failed: a short benchmark had not shown it.
    """
    result = soak.soak(
        url, engine=run.engine, model=plan.served_model, workload=run.workload, duration_s=soak_s,
        deadline=Deadline.after(soak_s + run.spec.budget.measure_timeout_s), cancelled=run.lease.cancelled,
    )  # fmt: skip
    if not result.ok:
        summary = f"it did not survive {soak_s:.0f} s under load: {'; '.join(result.problems) or result.errors}"
        remedy = "it is no candidate; look at the trial's log for what happened under load"
        raise ServerFailed(Explanation("scheduler_crash", run.engine.name, summary, remedy, blame=Blame.CONFIG))
    shown = {"soak_s": result.duration_s, "soak_first_tok_s": result.first_tok_s, "soak_last_tok_s": result.last_tok_s}
    return replace(
        measurement, metrics={**measurement.metrics, **shown}, warnings=(*measurement.warnings, *result.warnings)
    )


def raise_if_dead(run: StudyRun, server: RunningServer, plan: LaunchPlan, *, within_s: float = 0.0) -> None:
    """Raise ServerFailed when the server died during the measurement, whatever the client saw.

    `within_s` waits that long for the end of a server whose requests just failed: its log knows the cause.
    """
    until = Deadline.after(within_s)
    while True:
        status = process.status(run.link, server, log_offset=0, deadline=Deadline.after(30))
        if not status.alive:
            text = status.log_chunk.decode("utf-8", "replace")
            raise readiness.death(run.engine.name, text, status.exit_code, plan.expected, phase="benchmark")
        if until.passed:
            return
        run.clock.sleep(DEATH_POLL_S)
