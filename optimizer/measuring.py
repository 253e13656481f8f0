"""The measurement of one running server: its benchmark, and the load that a finalist must stand.

Decides what voids them from outside. How they are made is `bench.measure` and `bench.soak`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from optimizer.bench import measure, soak
from optimizer.bench.base import Measurement
from optimizer.clock import Deadline
from optimizer.engines.base import Blame, Explanation, LaunchPlan
from optimizer.errors import BenchmarkFailed, RatchetError, ServerFailed
from optimizer.host_watch import HostWatch
from optimizer.run import StudyRun
from optimizer.trial_log import TrialLog

if TYPE_CHECKING:
    from optimizer.run_trial import Proposal


def put_under_load(
    run: StudyRun, proposal: Proposal, plan: LaunchPlan, url: str, path: str, steps: TrialLog
) -> Measurement:
    """Measure a server that is ready; a finalist also has to survive the load for a while.

    Raises:
        RequestsFailed: too many requests failed, or did not end in time.
        ServerFailed: it did not stand the load.
        BenchmarkFailed: the measurement is void for no fault of the server.
    """
    assert run.server is not None
    watch = HostWatch(run, run.server)
    with steps.phase("measure"), steady(run, path):
        measurement = measure.measure(
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
        measurement = watch.complete(measurement)
    run.lease.check()
    if proposal.soak_s > 0:
        with steps.phase("soak"), steady(run, path):
            measurement = soak_under_load(run, plan, url, measurement, proposal.soak_s)
    return measurement


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
