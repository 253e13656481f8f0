"""A study whose trials are drawn instead of started: everything above `run_trial` is the real code.

`speed(config)` says what a configuration truly makes; `broken(config)` how it fails. Noise is a seeded draw.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from optimizer import trial_log
from optimizer.bench import workload as workloads
from optimizer.clock import SystemClock
from optimizer.engines.base import Config, Effective, Verdict
from optimizer.engines.registry import find_engine
from optimizer.lease import claim
from optimizer.plan import full_config
from optimizer.run import StudyRun
from optimizer.run_trial import Proposal
from optimizer.search.canonical import CanonicalSpace
from optimizer.search.policy import Options
from optimizer.search.study import open_study, result_of
from optimizer.spec import HostEntry, StudySpec
from storage import measurements, studies, trials
from storage.engine import Database
from storage.records import MeasurementRecord, RequestRecord, TrialRecord

PROMPTS = ("code", "prose", "reasoning", "json", "summary")


@dataclass
class World:
    """What is true of the synthetic host, and what was started on it."""

    speed: Callable[[Config], float]
    broken: Callable[[Proposal, Config], dict[str, Any] | None] = lambda proposal, config: None
    noise: float = 0.01
    seed: int = 1
    started: list[Proposal] = field(default_factory=list)
    wrong_output: Callable[[Config], bool] = lambda config: False
    pace: Callable[[Proposal], float] = lambda proposal: 1.0
    """What the host itself makes of a start: drift, other users, a good or a bad day."""
    metrics: Callable[[Proposal, Config], dict[str, float]] = lambda proposal, config: {}
    prompt_pace: Mapping[str, Callable[[Config], float]] = field(default_factory=dict)
    under_load: Callable[[Config], float] | None = None
    """Speed of a stream at concurrency 8, where the workload has it."""

    def trial(self, run: StudyRun, proposal: Proposal) -> TrialRecord:
        """Stand in for `run_trial`: the same rows, drawn."""
        self.started.append(proposal)
        config = full_config(run, None if proposal.as_home else proposal.params)
        effective = Effective(Verdict.ACCEPTED, {k: v for k, v in config.items() if k != "port"})
        now = datetime.now(UTC)
        record = TrialRecord(
            study_id=run.study.id, number=-1, kind=proposal.kind, state="proposed", arm=proposal.arm,
            params=dict(proposal.params), created_at=now, started_at=now, effective=effective.config,
            canonical_key=effective.key, launch_command="server", host=run.host.name, attempt=proposal.attempt,
            optuna_number=proposal.optuna_number, fence=run.lease.fence,
        )  # fmt: skip
        guard: dict[str, Any] = {"host": run.host.name, "fence": run.lease.fence}
        failure = self.broken(proposal, config)
        with run.db.write() as conn:
            number = trials.add(conn, record, **guard)
            fields = {
                "finished_at": now,
                **(self._failed(failure) if failure else self._measured(run, proposal, config)),
            }
            tok_s = fields.pop("tok_s", None)
            asked = fields.pop("requests", [])
            trials.update(conn, run.study.id, number, **guard, **fields)
            if tok_s:
                row = MeasurementRecord(run.study.id, number, "f", "direct", tok_s, fields["metrics"], now, 1.0)
                measurements.add(conn, row, asked, **guard)
            done = trials.get(conn, run.study.id, number)
        if done.optuna_number is not None and done.state != "interrupted":
            run.search.tell(done.optuna_number, result_of(done))
            trial_log.mark_told(run, done)
        return done

    def _failed(self, failure: Mapping[str, Any]) -> dict[str, Any]:
        infeasible = failure.get("blame") == "config"
        told = {"label": "unknown", "summary": "it broke", "remedy": "none", **failure}
        return {"state": "infeasible" if infeasible else "interrupted", "failure": told}

    def _measured(self, run: StudyRun, proposal: Proposal, config: Config) -> dict[str, Any]:
        draw = random.Random(f"{self.seed}-{len(self.started)}")
        start = self.speed(config) * self.pace(proposal) * math.exp(draw.gauss(0, self.noise))
        own = {p: self.prompt_pace.get(p, lambda config: 1.0)(config) for p in PROMPTS}
        tok_s = {p: [start * own[p] * math.exp(draw.gauss(0, self.noise))] for p in PROMPTS}
        value = math.exp(sum(math.log(v[0]) for v in tok_s.values()) / len(tok_s))
        ok = not self.wrong_output(config)
        check = {"ok": ok, "agreement": 1.0 if ok else 0.1, "problems": [] if ok else ["answers differ"]}
        metrics = {"output_tok_s": value, "output_tok_s@1": value, "error_rate": 0.0, "ttft_p99_ms": 10.0}
        metrics |= self.metrics(proposal, config)
        if proposal.kind != "baseline" and run.reference_tok_s:
            metrics["reference_tok_s"] = run.reference_tok_s
        levels = {1: {p: v[0] for p, v in tok_s.items()}}
        if self.under_load is not None:
            metrics["output_tok_s@8"] = self.under_load(config) * start
            levels[8] = dict.fromkeys(PROMPTS, metrics["output_tok_s@8"])
        asked = [_request(p, level, speed) for level, speeds in levels.items() for p, speed in speeds.items()]
        told = {"metrics": metrics, "tok_s": tok_s, "requests": asked, "output_check": check}
        return {"state": "complete", "output_tok_s": value, **told}


def _request(prompt: str, level: int, speed: float) -> RequestRecord:
    """A request of 100 tokens at this speed."""
    took = 100 / speed
    return RequestRecord(
        prompt, "code", level, 0, 0.0, 0.01, took, 10, 100, 100, [0.01, took], [1, 99], "stop", None, "x"
    )


def open_synthetic(
    db: Database, spec: StudySpec, study_id: str, *, host: HostEntry | None = None, optuna_url: str = "memory"
) -> StudyRun:
    """Return a StudyRun over a real database and search, with no host behind it."""
    with db.read() as conn:
        study = studies.get(conn, study_id)
    host = host or spec.host  # type: ignore[assignment]
    assert isinstance(host, HostEntry)
    engine = find_engine(spec.engine)
    from optimizer.search import spec_space

    space = spec_space.parse(spec.space.model_dump(exclude_none=True), presets={}, fixed=set(spec.launch.flags))
    lease = claim(db, host.name, "synthetic", study.id, clock=SystemClock(), ttl_s=1e6, renew_s=1e6)
    assert lease is not None
    workload = workloads.from_spec(spec.workload)
    options = Options.for_objective(spec.objective.subject_to, spec.objective.levels)
    return StudyRun(
        db=db, study=study, spec=spec, host=host, engine=engine, version=None, hardware=SimpleNamespace(),  # type: ignore[arg-type]
        known_flags=frozenset(), workload=replace(workload, prompts=tuple(_named(workload.prompts))),
        search=open_study(optuna_url, study.id, space=CanonicalSpace(space), seed=spec.seed, options=options),
        link=SimpleNamespace(name="synthetic", disturbances=0), lease=lease, clock=SystemClock(),  # type: ignore[arg-type]
    )  # fmt: skip


def _named(prompts: Any) -> list[Any]:
    return [replace(p, name=name) for p, name in zip(prompts, PROMPTS, strict=False)]
