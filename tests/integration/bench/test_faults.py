"""What goes wrong on a server is reported as what it is, counted, and never averaged in."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from optimizer.bench import load
from optimizer.bench.measure import measure
from optimizer.bench.workload import from_spec
from optimizer.clock import Deadline
from optimizer.errors import BenchmarkFailed, Stopped
from tests.integration.bench.conftest import Server
from tests.integration.bench.test_truth import run
from tests.unit.bench.fakes import FakeEngine


@pytest.mark.parametrize(
    ("script", "cause", "text"),
    [
        ("status=500", "http_500", "scripted failure"),
        ("itl=0.001,drop=5", "dropped", "after 5 tokens"),
        ("itl=0.001,stall=5", "stalled", "silent for 0.3 s"),
        ("ttft=5", "stalled", "silent for 0.3 s"),
        ("itl=0.05,n=100", "timeout", "not finished after 0.5 s"),
        ("itl=0.001,garbage=2", "bad_stream", "not JSON"),
    ],
)
def test_each_fault_has_its_name(server: Server, script: str, cause: str, text: str) -> None:
    workload = {"requests_per_level": 2, "stall_timeout_s": 0.3, "request_timeout_s": 0.5, "max_tokens": 100}
    with pytest.raises(BenchmarkFailed, match=cause) as caught:
        run(server, script, **workload)
    assert text in str(caught.value)
    assert caught.value.remedy


def test_failed_requests_are_counted_and_not_averaged_in(server: Server) -> None:
    prompts = [{"name": n, "prompt": p} for n, p in (("good", "itl=0.01,n=10"), ("bad", "itl=0.001,n=10,drop=3"))]
    workload = from_spec(
        {"prompts": prompts, "max_error_share": 0.5, "warmup_requests": 0, "api": "completion", "cache": "warm"}
    )
    result = measure(
        server.url, engine=FakeEngine(), model="", workload=workload, path="direct", deadline=Deadline.after(30)
    )
    assert result.metrics["error_rate"] == 0.5
    assert list(result.tok_s) == ["good"]
    assert result.metrics["output_tok_s"] == pytest.approx(10 / 0.09, rel=0.15)
    assert "1 of 2 requests failed" in " ".join(result.warnings)
    assert "1 dropped" in " ".join(result.warnings)
    bad = next(s for s in result.samples if s.prompt == "bad")
    assert bad.error and len(bad.token_times_s) == 3, "what arrived before the drop is kept"


def test_a_server_that_is_not_there(unused_port: int) -> None:
    with pytest.raises(BenchmarkFailed, match="connect"):
        measure(
            f"http://127.0.0.1:{unused_port}",
            engine=FakeEngine(metrics=None),
            model="",
            workload=from_spec({}),
            path="direct",
            deadline=Deadline.after(30),
        )


def test_thousands_of_refused_requests_are_counted(unused_port: int) -> None:
    workload = from_spec({"warmup_requests": 0, "requests_per_level": 3000, "concurrency": 4})
    with pytest.raises(BenchmarkFailed, match=r"3000 of 3000 requests failed .*: 3000 connect"):
        measure(
            f"http://127.0.0.1:{unused_port}",
            engine=FakeEngine(metrics=None),
            model="",
            workload=workload,
            path="direct",
            deadline=Deadline.after(60),
        )


def test_a_server_that_dies_in_the_middle(server: Server) -> None:
    threading.Timer(0.4, server.process.kill).start()
    with pytest.raises(BenchmarkFailed, match=r"dropped|connect"):
        run(server, "itl=0.02,n=500", max_tokens=500)


def test_usage_that_the_stream_contradicts(server: Server) -> None:
    result = run(server, "itl=0.001,usage=-9", engine=FakeEngine(metrics=None))
    assert any("usage and stream disagree" in w for w in result.warnings)


def test_usage_that_is_too_high_where_every_event_is_counted(server: Server) -> None:
    prompts = [{"name": "a", "prompt": "itl=0.001,n=20,usage=9"}]
    workload = from_spec({"prompts": prompts, "api": "completion", "warmup_requests": 0, "cache": "warm"})
    result = measure(
        server.url,
        engine=FakeEngine(metrics=None),
        model="",
        workload=workload,
        path="direct",
        deadline=Deadline.after(30),
    )
    assert any("usage says 29 tokens, the stream showed 20" in w for w in result.warnings)


def test_no_usage_at_all_is_said(server: Server) -> None:
    result = run(server, "itl=0.001,nousage=1")
    assert result.metrics["output_tokens"] == 100
    assert any("no usage" in w for w in result.warnings)


def test_prefix_cache_hits_in_a_cold_run_are_said(server: Server) -> None:
    result = run(server, "itl=0.001,cached=100")
    assert any("prefix cache" in w for w in result.warnings)
    assert result.metrics["cache_hit_rate"] == pytest.approx(100 / 120)


def test_counters_that_cannot_be_read_are_said(server: Server) -> None:
    result = run(server, "itl=0.001,n=5", engine=FakeEngine(metrics="/none"), concurrency=[1, 2])
    assert sum("(/none) could not be read" in w for w in result.warnings) == 1


def test_foreign_requests_void_the_measurement(server: Server) -> None:
    def intrude() -> None:
        while not server.get("/bodies"):
            time.sleep(0.01)
        server.get("/add/500")

    intruder = threading.Thread(target=intrude)
    intruder.start()
    with pytest.raises(BenchmarkFailed, match="somebody else"):
        run(server, "itl=0.01,n=20")
    intruder.join()


def test_a_cancel_ends_everything_within_a_second(server: Server) -> None:
    begun = time.monotonic()
    cancel_at = begun + 0.6
    with pytest.raises(Stopped):
        measure(
            server.url,
            engine=FakeEngine(),
            model="itl=0.05,n=1000",
            workload=from_spec({"max_tokens": 1000, "concurrency": 8}),
            path="direct",
            deadline=Deadline.after(60),
            cancelled=lambda: time.monotonic() > cancel_at,
        )
    assert time.monotonic() - cancel_at < 1.0


def test_the_deadline_ends_everything(server: Server) -> None:
    begun = time.monotonic()
    with pytest.raises(BenchmarkFailed, match="deadline"):
        measure(
            server.url,
            engine=FakeEngine(),
            model="itl=0.05,n=1000",
            workload=from_spec({"max_tokens": 1000}),
            path="direct",
            deadline=Deadline.after(0.8),
        )
    assert time.monotonic() - begun < 3.0


def test_a_client_that_is_killed_is_noticed(server: Server) -> None:
    workload = from_spec({"max_tokens": 1000, "warmup_requests": 0})
    with load.LoadClient(server.url) as client:
        process = client._process
        assert process is not None
        threading.Timer(0.3, os.kill, [process.pid, 9]).start()
        planned = load_plan(workload)
        with pytest.raises(BenchmarkFailed, match="died"):
            client.run(planned, workload, 1, deadline=Deadline.after(20))
        assert process.poll() is not None


def load_plan(workload: object) -> list[object]:
    from optimizer.bench.plan import level_requests

    return list(level_requests(workload, 1, engine="llamacpp", model="itl=0.05,n=1000"))  # type: ignore[arg-type]


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_a_losing_measurement_ends_early(server: Server) -> None:
    incumbent = dict.fromkeys(("code", "prose", "reasoning", "json", "summary"), 200.0)
    result = run(server, "itl=0.01,n=20", incumbent=incumbent, concurrency=[1, 2])
    assert result.ended_early
    assert 2 <= len(result.tok_s) < 5
    assert "against the incumbent" in result.early_reason
    assert result.metrics["output_tok_s"] == pytest.approx(105, rel=0.15)
    assert {s.concurrency for s in result.samples} == {1}, "later levels are skipped"


def test_a_winning_measurement_goes_on_to_its_end(server: Server) -> None:
    incumbent = dict.fromkeys(("code", "prose", "reasoning", "json", "summary"), 90.0)
    result = run(server, "itl=0.01,n=20", incumbent=incumbent)
    assert not result.ended_early and len(result.tok_s) == 5
