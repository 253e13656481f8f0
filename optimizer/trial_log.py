"""What is written down of one trial while it runs: its row, phases with times, samples, log and outcome.

Decides when a row is written (before the next thing happens on the host) and how an outcome becomes columns.
Every write carries the lease's fence, so that a worker that lost its host cannot write any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import structlog

from optimizer.bench.base import Measurement, RequestSample
from optimizer.clock import Deadline
from optimizer.engines.base import Blame, Explanation, FlagValue, split_env
from optimizer.errors import HostError
from optimizer.plan import Planned
from optimizer.remote import process
from optimizer.remote.base import StopProof
from optimizer.run import StudyRun
from storage import events, logs, measurements, series, trials
from storage.records import MeasurementRecord, RequestRecord, SeriesRecord, TrialRecord

if TYPE_CHECKING:
    from optimizer.run_trial import Outcome, Proposal

log = structlog.get_logger(__name__)

LOG_HEAD_BYTES = 256_000
LOG_TAIL_BYTES = 1_000_000
"""A server's log is kept to its first 256 kB (arguments, weights, memory) and its last 1 MB (the end)."""
SHOWN_LOG_BYTES = 32_000
SHOWN_LOG_EVERY_S = 2.0
"""What is stored of the log of a server that still starts, for people who watch it; the whole log replaces it."""


def propose(run: StudyRun, proposal: Proposal, planned: Planned) -> TrialRecord:
    """Write the trial's row before anything is started, so that a crash finds what was meant."""
    now = run.clock.now()
    _, env = split_env(planned.config)
    record = TrialRecord(
        study_id=run.study.id,
        number=-1,
        kind=proposal.kind,
        state="proposed",
        arm=proposal.arm,
        params=proposal.params,
        created_at=now,
        effective=planned.effective.config,
        canonical_key=planned.effective.key,
        launch_command=planned.command,
        env_names=sorted({*env, *planned.plan.env}),
        host=run.host.name,
        engine_version=run.version,
        driver_version=run.hardware.driver_version or None,
        optuna_number=proposal.optuna_number,
        attempt=proposal.attempt,
        fence=run.lease.fence,
        started_at=now,
    )
    with run.db.write() as conn:
        number = trials.add(conn, record, host=run.host.name, fence=run.lease.fence)
        events.append(
            conn,
            run.study.id,
            "trial",
            {"number": number, "state": "proposed", "kind": proposal.kind, "params": proposal.params},
            now,
        )
    return replace(record, number=number)


def mark_told(run: StudyRun, trial: TrialRecord) -> None:
    """Remember that the search has been told; what is recorded and not told is told after a crash."""
    with run.db.write() as conn:
        trials.update(conn, trial.study_id, trial.number, host=run.host.name, fence=run.lease.fence, told=True)


def set_optuna_number(run: StudyRun, trial: TrialRecord, number: int) -> None:
    """Remember under which number the search knows a trial that it did not ask for."""
    with run.db.write() as conn:
        trials.update(
            conn,
            trial.study_id,
            trial.number,
            host=run.host.name,
            fence=run.lease.fence,
            optuna_number=number,
            told=True,
        )


CUT_OFF = Explanation(
    label="unknown",
    engine="",
    summary="Ratchet itself was stopped while this trial ran",
    remedy="nothing to do: the same configuration is asked again",
    blame=Blame.INFRASTRUCTURE,
    retry=True,
    confidence=1.0,
)


def close_unfinished(run: StudyRun) -> None:
    """Close the rows of trials that an earlier process left open; their configurations are asked again."""
    now, host, fence = run.clock.now(), run.host.name, run.lease.fence
    failure = asdict(CUT_OFF) | {"engine": run.engine.name}
    with run.db.write() as conn:
        for trial in trials.live(conn, run.study.id):
            if trial.host != host:
                continue
            closed: dict[str, Any] = {"state": "interrupted", "phase": "", "failure": failure, "finished_at": now}
            trials.update(conn, trial.study_id, trial.number, host=host, fence=fence, **closed)
            events.append(conn, run.study.id, "trial", {"number": trial.number, "state": "interrupted"}, now)


class TrialLog:
    """The diary of one trial."""

    def __init__(self, run: StudyRun, trial: TrialRecord) -> None:
        self.run = run
        self.trial = trial
        self.config: dict[str, FlagValue] = dict(trial.effective)
        self._timings: dict[str, float] = {}
        self._log = b""
        self._unshown = b""
        self._shown_at = 0.0

    def update(self, **fields: Any) -> None:
        """Change columns of the trial's row, under the fence; a database that restarts meanwhile is waited for."""
        which, host, fence = (self.trial.study_id, self.trial.number), self.run.host.name, self.run.lease.fence
        self.run.db.transact(lambda conn: trials.update(conn, *which, host=host, fence=fence, **fields))
        self.trial = replace(self.trial, **fields)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase and show it; the time is kept even when the phase fails."""
        state = {"load": "launching", "measure": "measuring"}.get(name)
        started = self.run.clock.monotonic()
        if self._unshown:
            self._put_shown_log()
        try:
            self.update(phase=name, **({"state": state} if state else {}))
            self.run.say("phase", number=self.trial.number, phase=name)
            yield
        finally:
            spent = round(self.run.clock.monotonic() - started, 3)
            self._timings[f"{name}_s"] = round(self._timings.get(f"{name}_s", 0.0) + spent, 3)

    def stage(self, text: str) -> None:
        """Show a stage that the server's log reached."""
        self.run.say("stage", number=self.trial.number, stage=text)

    def show_log(self, tail: bytes) -> None:
        """Store the end of a log that still grows, every few seconds at most."""
        self._unshown = tail[-SHOWN_LOG_BYTES:]
        if self.run.clock.monotonic() - self._shown_at >= SHOWN_LOG_EVERY_S:
            self._put_shown_log()

    def _put_shown_log(self) -> None:
        data, self._unshown, self._shown_at = self._unshown, b"", self.run.clock.monotonic()
        host, fence = self.run.host.name, self.run.lease.fence
        with self.run.db.write() as conn:
            logs.put(conn, self.trial.study_id, self.trial.number, data, host=host, fence=fence)

    def read_log(self) -> bytes:
        """Return the server's log so far (its head and tail when it is long)."""
        server = self.run.server
        if server is None:
            return self._log
        deadline = Deadline.after(30)
        head = process.read_log(self.run.link, server, offset=0, limit=LOG_HEAD_BYTES, deadline=deadline)
        if len(head) < LOG_HEAD_BYTES:
            return head
        size = process.status(self.run.link, server, log_offset=-1, deadline=deadline).log_size
        start = max(LOG_HEAD_BYTES, size - LOG_TAIL_BYTES)
        tail = process.read_log(self.run.link, server, offset=start, limit=LOG_TAIL_BYTES, deadline=deadline)
        gap = b"\n[... %d bytes left out ...]\n" % (start - LOG_HEAD_BYTES) if start > LOG_HEAD_BYTES else b""
        return head + gap + tail

    def keep_log(self) -> None:
        """Fetch the log while the host still has it; a broken connection here must not hide the real failure."""
        try:
            self._log = self.read_log()
        except HostError as error:
            log.warning("trial.log_lost", trial=self.trial.number, host=error.host, error=error.message)

    def note_stop(self, proof: StopProof) -> None:
        """Show how the server was stopped."""
        self.run.say("stopped", number=self.trial.number, killed=proof.killed, elapsed_s=round(proof.elapsed_s, 3))

    def finish(self, outcome: Outcome) -> TrialRecord:
        """Write everything that was seen in one transaction and return the finished trial."""
        now = self.run.clock.now()
        columns = outcome_fields(outcome)
        if "metrics" in columns and self.trial.kind != "baseline" and self.run.reference_tok_s:
            columns["metrics"] = {**columns["metrics"], "reference_tok_s": self.run.reference_tok_s}
        columns |= {"phase": "", "timings": self._all_timings(outcome), "finished_at": now}
        host, fence = self.run.host.name, self.run.lease.fence
        with self.run.db.write() as conn:
            trials.update(conn, self.trial.study_id, self.trial.number, host=host, fence=fence, **columns)
            if outcome.measurement is not None:
                record, requests = measurement_rows(self.trial, outcome.measurement)
                measurements.add(conn, record, requests, host=host, fence=fence)
                series.put(conn, series_rows(self.trial, outcome.measurement, record), host=host, fence=fence)
            if self._log:
                logs.put(conn, self.trial.study_id, self.trial.number, self._log, host=host, fence=fence)
            events.append(conn, self.run.study.id, "trial", self._event(outcome, columns), now)
        self.trial = replace(self.trial, **columns)
        return self.trial

    def _all_timings(self, outcome: Outcome) -> dict[str, float]:
        """Seconds by phase; a proven start is split in `load_s` (until healthy) and `ready_s` (until it generated)."""
        timings = dict(self._timings)
        if outcome.ready is not None:
            healthy = outcome.ready.stages_s.get("healthy", timings.get("load_s", 0.0))
            timings["ready_s"] = round(max(0.0, timings.get("load_s", 0.0) - healthy), 3)
            timings["load_s"] = healthy
            timings |= {f"stage:{k}": v for k, v in outcome.ready.stages_s.items()}
        return timings

    def _event(self, outcome: Outcome, fields: dict[str, Any]) -> dict[str, Any]:
        explanation = outcome.explanation
        return {
            "number": self.trial.number,
            "kind": self.trial.kind,
            "state": outcome.state,
            "output_tok_s": fields.get("output_tok_s"),
            "accept_len": fields.get("accept_len"),
            "failure": explanation.summary if explanation else None,
        }


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    """Return the columns of a trial for an outcome."""
    fields: dict[str, Any] = {"state": outcome.state}
    if outcome.explanation is not None:
        fields["failure"] = asdict(outcome.explanation)
    if outcome.check is not None:
        fields["output_check"] = asdict(outcome.check)
    if outcome.ready is not None:
        fields["running_config"] = outcome.ready.running_config
        fields["warnings"] = [f"{k}: planned {a}, runs {b}" for k, (a, b) in outcome.ready.differences.items()]
    if outcome.measurement is not None:
        m = outcome.measurement
        fields |= {
            "output_tok_s": m.metrics.get("output_tok_s"),
            "accept_len": m.accept_len,
            "accept_rate": m.accept_rate,
            "step_ms": m.step_ms,
            "metrics": m.metrics,
            "warnings": [*fields.get("warnings", []), *m.warnings],
        }
    return fields


def measurement_rows(trial: TrialRecord, measurement: Measurement) -> tuple[MeasurementRecord, list[RequestRecord]]:
    """Return the rows of a measurement: its derived quantities, and every raw request."""
    record = MeasurementRecord(
        study_id=trial.study_id,
        trial_number=trial.number,
        workload_fingerprint=measurement.workload_fingerprint,
        path=measurement.path,
        tok_s=measurement.tok_s,
        metrics=measurement.metrics,
        started_at=datetime.fromisoformat(measurement.started_at),
        bench_s=measurement.bench_s,
        ended_early=measurement.ended_early,
        early_reason=measurement.early_reason,
        warnings=list(measurement.warnings),
    )
    return record, [request_row(s) for s in measurement.samples]


def series_rows(trial: TrialRecord, measurement: Measurement, record: MeasurementRecord) -> list[SeriesRecord]:
    """Return what was sampled while a trial was measured, on the same zero of time as its requests."""
    return [
        SeriesRecord(trial.study_id, trial.number, s.source, s.name, record.started_at, list(s.times_s), list(s.values))
        for s in measurement.series
    ]


def request_row(sample: RequestSample) -> RequestRecord:
    """Return a raw request as it is stored."""
    values = {f.name: getattr(sample, f.name) for f in fields(RequestRecord)}
    values |= {"token_times_s": list(sample.token_times_s), "chunk_tokens": list(sample.chunk_tokens)}
    return RequestRecord(**values)


def sample_of(row: RequestRecord) -> RequestSample:
    """Return a stored request as a sample again."""
    values = {f.name: getattr(row, f.name) for f in fields(RequestRecord)}
    values |= {"token_times_s": tuple(row.token_times_s), "chunk_tokens": tuple(row.chunk_tokens)}
    return RequestSample(**values)
