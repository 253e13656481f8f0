"""One trial on a pretended host: what a failed measurement becomes, and what is kept of a good one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from optimizer import deaths, measuring
from optimizer import run_trial as trials_of
from optimizer.bench.base import Measurement, Series
from optimizer.engines.base import Effective, Hardware, LaunchPlan, Verdict
from optimizer.engines.registry import find_engine
from optimizer.errors import BenchmarkFailed, RequestsFailed
from optimizer.plan import Planned
from optimizer.readiness import Ready
from optimizer.remote import gpu, process
from optimizer.remote.base import Gpu, RunningServer, ServerStatus, StopProof
from optimizer.run_trial import Proposal, run_trial
from storage import measurements, series
from storage.engine import Database
from tests.unit.bench.fakes import sample
from tests.unit.core.test_phases import study_run

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79 GiB\n"
DECODE = "[2026-11-29 20:00:00 TP0] Decode batch, #running-req: 1, #token: 9, token usage: 0.01, cuda graph: {}, "
DECODE += "gen throughput (token/s): 90.00, #queue-req: 0\n"


@dataclass
class Host:
    """What the pretended server does; `log` grows while it is measured."""

    measure: Callable[..., Measurement]
    dies_at_look: int | None = None
    log: bytes = b"loaded\n"
    looks: int = 0
    stopped: list[str] = field(default_factory=list)

    def status(self, link: Any, server: RunningServer, **asked: Any) -> ServerStatus:
        self.looks += 1
        alive = self.dies_at_look is None or self.looks < self.dies_at_look
        return ServerStatus(alive, None if alive else 1, (), (), len(self.log), 0, self.log)

    def read_log(self, link: Any, server: RunningServer, *, offset: int, limit: int, deadline: Any) -> bytes:
        return self.log[offset : offset + limit]

    def stop(self, link: Any, server: RunningServer, **asked: Any) -> StopProof:
        self.stopped.append(server.run_id)
        return StopProof((), False, True, True, 0.1)


@pytest.fixture
def play(db: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that runs one trial on a pretended host and gives back run and trial."""

    def run(host: Host, *, attempt: int = 1, engine: str = "sglang") -> tuple[Any, Any]:
        study = study_run(db)
        study = replace(study, engine=find_engine(engine), hardware=Hardware(gpu_count=1))
        plan = LaunchPlan(("server",), {}, None, 8000, "127.0.0.1", "m", {})
        planned = Planned({}, {}, Effective(Verdict.ACCEPTED, {}), plan)
        server = RunningServer("r", 1, 1, "d", "log", 8000, "server")
        monkeypatch.setattr(trials_of, "plan_server", lambda *_: planned)
        monkeypatch.setattr(trials_of.readiness, "wait_until_ready", lambda *_, **__: Ready("http://x", {}, {}))
        monkeypatch.setattr(measuring.measure, "measure", host.measure)
        monkeypatch.setattr(trials_of, "DEATH_PATIENCE_S", 2.0)
        monkeypatch.setattr(type(study), "base_url", lambda self: ("http://x", "direct"))
        for name in ("status", "read_log", "stop"):
            monkeypatch.setattr(process, name, getattr(host, name))
        monkeypatch.setattr(process, "preflight", lambda *_, **__: ())
        monkeypatch.setattr(deaths.kernel, "read", lambda *_, **__: "")
        monkeypatch.setattr(process, "launch", lambda *_, **__: server)
        monkeypatch.setattr(gpu, "snapshot", lambda *_: [Gpu(0, "g", 80_000, 40_000, 99.0, 300.0, None, 60.0)])
        trial = run_trial(study, Proposal("explore", "key", {}, attempt=attempt))
        assert host.stopped == ["r"], "whatever happened, it was stopped"
        return study, trial

    return run


def fails(error: Exception) -> Callable[..., Measurement]:
    def measure(*_: Any, **__: Any) -> Measurement:
        raise error

    return measure


def test_requests_that_fail_on_a_living_server_are_asked_again_once(play: Callable[..., Any]) -> None:
    _, trial = play(Host(fails(RequestsFailed("3 of 5 requests failed: 3 stalled"))))
    assert (trial.state, trial.failure["blame"]) == ("interrupted", "engine")


def test_requests_that_fail_again_are_the_fault_of_the_configuration(play: Callable[..., Any]) -> None:
    """One candidate that hangs under load must not end the whole night."""
    _, trial = play(Host(fails(RequestsFailed("3 of 5 requests failed: 3 stalled"))), attempt=2)
    assert trial.state == "infeasible" and "3 stalled" in trial.failure["summary"]


def test_a_server_that_died_meanwhile_is_explained_by_its_log(play: Callable[..., Any]) -> None:
    host = Host(fails(RequestsFailed("5 of 5 requests failed: 5 dropped")), dies_at_look=2, log=OOM.encode())
    _, trial = play(host)
    assert trial.failure["label"].startswith("oom"), "the end came a moment after the requests had failed"


def test_foreign_load_is_nobodys_fault_here(play: Callable[..., Any]) -> None:
    _, trial = play(Host(fails(BenchmarkFailed("somebody else used the server"))), attempt=3)
    assert (trial.state, trial.failure["blame"]) == ("interrupted", "infrastructure")


def test_series_and_graphs_of_the_measured_window_are_kept(play: Callable[..., Any], db: Database) -> None:
    def measure(*_: Any, machine: Any, **__: Any) -> Measurement:
        host.log += DECODE.format("False").encode()  # warm-up
        machine.mark()
        host.log += (DECODE.format("True") * 3 + DECODE.format("False")).encode()
        seen = machine.read()
        machine.mark()
        host.log += DECODE.format("False").encode() * 5  # after it
        power = seen["gpu0", "power_w"]
        return Measurement(
            "f", "direct", {"code": [10.0]}, {"output_tok_s": 10.0}, (sample(),),
            started_at="2026-11-29T20:00:00+00:00", series=(Series("gpu0", "power_w", (0.5,), (power,)),),
        )  # fmt: skip

    host = Host(measure)
    study, trial = play(host)
    assert trial.state == "complete", trial.failure
    assert trial.metrics["cuda_graph_share"] == 0.75
    assert any("75% of the decode steps ran as CUDA graphs" in w for w in trial.warnings)
    with db.read() as conn:
        (kept,) = series.for_trial(conn, study.study.id, trial.number)
        (row,) = measurements.for_trial(conn, study.study.id, trial.number)
    assert (kept.source, kept.name, kept.times_s, kept.values) == ("gpu0", "power_w", [0.5], [300.0])
    assert kept.started_at == row.started_at and row.started_at.hour == 20


def test_an_engine_that_tells_nothing_of_graphs_has_no_share(play: Callable[..., Any]) -> None:
    def measure(*_: Any, machine: Any, **__: Any) -> Measurement:
        machine.mark()
        machine.mark()
        return Measurement(
            "f", "direct", {"code": [10.0]}, {"output_tok_s": 10.0}, (sample(),), started_at="2026-11-29T20:00:00+00:00"
        )

    _, trial = play(Host(measure), engine="llamacpp")
    assert "cuda_graph_share" not in trial.metrics and trial.warnings == []
