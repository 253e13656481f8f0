"""Sampling while a level runs: what is kept, and that a failed read is no failure."""

from __future__ import annotations

import time

import pytest

from optimizer.bench import scrape
from optimizer.bench.base import Series
from optimizer.bench.probe import Probe, joined, summary
from optimizer.engines.registry import find_engine


def test_every_read_is_kept_with_its_time_and_failed_ones_left_out() -> None:
    reads: list[float] = []

    def read() -> dict[tuple[str, str], float]:
        reads.append(100.0 + len(reads))
        if len(reads) == 2:
            raise OSError("no answer this time")
        return {("gpu0", "power_w"): reads[-1]}

    begun, until = time.perf_counter(), time.monotonic() + 10
    with Probe([read], zero_s=begun, interval_s=0.001) as probe:
        while len(reads) < 5 and time.monotonic() < until:
            time.sleep(0.005)
    (one,) = probe.series()
    assert (one.source, one.name) == ("gpu0", "power_w")
    assert list(one.values) == [v for v in reads if v != 101]
    assert list(one.times_s) == sorted(one.times_s) and one.times_s[0] >= 0
    metrics = summary([one])
    assert metrics["gpu0_power_w_min"] == 100 and metrics["gpu0_power_w_max"] == reads[-1]
    assert metrics["gpu0_power_w_mean"] == sum(one.values) / len(one.values)
    count = len(reads)
    time.sleep(0.02)
    assert len(reads) == count, "nothing is read after the level"


def test_without_a_reader_nothing_is_sampled() -> None:
    with Probe([]) as probe:
        pass
    assert probe.series() == []


def test_levels_are_put_together() -> None:
    parts = [Series("engine", "x", (1.0,), (5.0,)), Series("engine", "y", (1.0,), (6.0,))]
    both = joined([*parts, Series("engine", "x", (9.0,), (7.0,))])
    assert both == (Series("engine", "x", (1.0, 9.0), (5.0, 7.0)), parts[1])


GAUGES = {
    "sglang": """sglang:num_running_reqs{dp_rank="0"} 3\nsglang:num_running_reqs{dp_rank="1"} 4
sglang:num_queue_reqs{dp_rank="0"} 1\nsglang:token_usage{dp_rank="0"} 0.25\nsglang:token_usage{dp_rank="1"} 0.5
sglang:generation_tokens_total{dp_rank="0"} %d
""",
    "vllm": """vllm:num_requests_running{engine="0"} 7.0\nvllm:num_requests_waiting{engine="0"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:generation_tokens_total{engine="0"} %d
""",
    "llamacpp": """llamacpp:requests_processing 7\nllamacpp:requests_deferred 1\nllamacpp:kv_cache_usage_ratio 0.5
llamacpp:tokens_predicted_total %d
""",
}


@pytest.mark.parametrize("name", GAUGES)
def test_gauges_of_every_engine_have_one_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = iter([GAUGES[name] % 100, GAUGES[name] % 300, None])
    clock = iter([10.0, 12.0, 14.0])
    monkeypatch.setattr(scrape, "counters", lambda *_: next(texts))
    monkeypatch.setattr(scrape.time, "perf_counter", lambda: next(clock))
    read = scrape.EngineWatch("http://x", find_engine(name))
    levels = {("engine", "running_req"): 7.0, ("engine", "queue_req"): 1.0, ("engine", "kv_usage"): 0.5}
    assert read() == levels
    assert read() == {**levels, ("engine", "gen_tok_s"): 100.0}
    assert read() == {}, "a server that does not answer is no error"
