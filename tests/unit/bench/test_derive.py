"""Quantities derived from samples, the early end, and what makes a measurement doubtful."""

from __future__ import annotations

import math
import random

import pytest

from optimizer.bench import derive, early, metric_names
from optimizer.bench.base import Workload
from optimizer.bench.doubts import doubts
from optimizer.bench.interval import speed_interval
from optimizer.bench.load import PhaseStats
from optimizer.bench.verdict import BASELINE, CANDIDATE, Restart, judge
from optimizer.bench.workload import from_spec
from tests.unit.bench.fakes import sample

WORKLOAD = from_spec({})
CALM = PhaseStats(0, 1, False, 0.1, 0.1, 0.2, 0.5, 0.05, 1)


def test_speeds_of_one_stream() -> None:
    one = sample()
    assert one.end_to_end_tok_s == pytest.approx(10)
    assert one.decode_tok_s == pytest.approx(10)
    metrics = derive.level_metrics([one], WORKLOAD)
    assert metrics["ttft_p50_ms"] == pytest.approx(100)
    assert metrics["itl_p99_ms"] == pytest.approx(100)
    assert metrics["tpot_p50_ms"] == pytest.approx(100)
    assert metrics["latency_p50_ms"] == pytest.approx(1000)


def test_every_quantity_of_a_level_may_be_limited() -> None:
    one = sample()
    assert set(derive.level_metrics([one], WORKLOAD)) <= metric_names.BY_LEVEL
    assert set(derive.throughput([one])) <= metric_names.BY_LEVEL


def test_a_limit_on_what_is_never_measured_is_a_mistake() -> None:
    told = metric_names.check_limits(["ttft_p99", "itl_p50_ms@8", "ttft_p99_ms@4", "accept_len@1", "foo"], [1, 4])
    assert [p.path.removeprefix("objective.subject_to.") for p in told] == [
        "ttft_p99", "itl_p50_ms@8", "accept_len@1", "foo"
    ]  # fmt: skip
    assert told[0].hint == "did you mean ttft_p99_ms?"
    assert metric_names.check_limits(["error_rate", "gpu0_power_w_max", "accept_len", "throughput_tok_s@4"], [4]) == []


def test_failed_requests_are_in_no_average() -> None:
    bad = sample("b", error="dropped: x", end_s=99.0, output_tokens=1)
    metrics = derive.level_metrics([sample("a"), bad], WORKLOAD)
    assert metrics["output_tok_s"] == pytest.approx(10)
    assert metrics["latency_p99_ms"] == pytest.approx(1000)
    assert metrics["errors"] == 1 and metrics["error_rate"] == 0.5


def test_the_ratio_of_two_objectives_is_the_ratio_of_the_verdict() -> None:
    rng = random.Random(2)
    slow = [sample(p, end_s=rng.uniform(0.5, 2.0), repeat=r) for p in "abcde" for r in (0, 1)]
    fast = [sample(p, end_s=rng.uniform(0.5, 2.0), repeat=r) for p in "abcde" for r in (0, 1)]
    ratio = derive.mean_speed(derive.blocks(fast)) / derive.mean_speed(derive.blocks(slow))
    pair = [Restart(BASELINE, derive.blocks(slow)), Restart(CANDIDATE, derive.blocks(fast))]
    assert judge(list("abcde"), pair).ratio == pytest.approx(ratio)


def test_tokens_of_one_step_are_one_arrival() -> None:
    burst = sample(token_times_s=(0.1, 0.1001, 0.1002, 0.2, 0.2001, 0.3), chunk_tokens=(1,) * 6)
    assert derive.arrival_gaps_s(burst) == pytest.approx([0.1, 0.1])


def test_throughput_leaves_out_ramp_and_drain() -> None:
    """Four streams of one token each 0.1 s; the last request runs alone and must not pull the rate down."""
    made = []
    for stream in range(4):
        begin = 0.3 * stream
        for turn in range(3 if stream else 4):
            start = begin + turn * 5.0
            times = tuple(start + 0.1 * (i + 1) for i in range(50))
            made.append(
                sample(
                    concurrency=4,
                    start_s=start,
                    first_token_s=times[0],
                    end_s=times[-1],
                    token_times_s=times,
                    chunk_tokens=(1,) * 50,
                    output_tokens=50,
                    stream_tokens=50,
                )
            )
    assert derive.throughput(made)["throughput_tok_s"] == pytest.approx(40, rel=0.01)
    assert derive.throughput([])["throughput_tok_s"] == 0


def test_events_with_several_tokens_count_as_usage_says() -> None:
    chunky = sample(token_times_s=(0.25, 0.5, 0.75, 1.0), chunk_tokens=(1,) * 4, stream_tokens=4, output_tokens=12)
    assert derive.throughput([chunky])["throughput_tok_s"] == pytest.approx(12)


def test_goodput_counts_what_kept_the_limits() -> None:
    limits = from_spec({"slo": {"ttft_ms": 150, "itl_ms": 120}})
    slow_first = sample(first_token_s=0.2, token_times_s=(0.2, 1.0), chunk_tokens=(5, 5))
    metrics = derive.level_metrics([sample(), slow_first, sample(error="dropped: x")], limits)
    assert metrics["goodput_share"] == pytest.approx(1 / 3)
    assert derive.level_metrics([sample(), sample()], WORKLOAD)["goodput_share"] == 1


def test_percentiles_interpolate() -> None:
    assert derive.percentile([3, 1, 2], 50) == 2
    assert derive.percentile([0, 10], 90) == pytest.approx(9)
    assert derive.percentile([5], 99) == 5


def test_a_hopeless_measurement_is_seen_after_two_prompts() -> None:
    incumbent = dict.fromkeys("abcde", 100.0)
    assert not early.standing({"a": 50.0}, incumbent).hopeless, "one prompt is never enough"
    assert early.standing({"a": 55.0, "b": 60.0}, incumbent).hopeless
    assert not early.standing({"a": 90.0, "b": 92.0, "c": 91.0}, incumbent).hopeless
    assert not early.standing({}, incumbent).hopeless
    assert early.standing({"a": 80.0}, {}).prompts == 0


def test_a_mixed_configuration_is_not_given_up() -> None:
    """Speculation that hurts two prompts and helps three must be measured whole."""
    incumbent = dict.fromkeys("abcde", 100.0)
    assert not early.standing({"a": 70.0, "b": 95.0}, incumbent).hopeless


def test_an_equal_configuration_is_rarely_ended_early() -> None:
    """Prompts that scatter by 12 % around an equal mean: the bound holds over all looks together."""
    rng, ended = random.Random(5), 0
    for _ in range(1000):
        measured: dict[str, float] = {}
        hopeless = False
        for prompt in "abcdefghij":
            measured[prompt] = 100 * math.exp(rng.gauss(0, 0.12))
            hopeless = hopeless or early.standing(measured, dict.fromkeys("abcdefghij", 100.0)).hopeless
        ended += hopeless
    assert ended <= 50


@pytest.mark.parametrize(
    ("fields", "stats", "text"),
    [
        ({}, CALM, None),
        ({}, PhaseStats(0, 1, False, 0.1, 0.1, 9.0, 20, 0.05, 1), "held up"),
        ({}, PhaseStats(0, 1, False, 0.9, 0.9, 9.0, 20, 0.95, 1), "bottleneck"),
        ({"usage_given": False}, CALM, "no usage"),
        ({"output_tokens": 7, "stream_tokens": 10}, CALM, "disagree"),
        ({"output_tokens": 11}, CALM, None),
        ({"output_tokens": 30}, CALM, None),
        ({"output_tokens": 30, "tokens_exact": True}, CALM, "disagree"),
        ({"cached_tokens": 18}, CALM, "prefix cache"),
        ({"cached_tokens": 5}, CALM, None),
        ({"error": "stalled: x"}, CALM, "1 stalled"),
    ],
)
def test_doubts_are_told(fields: dict[str, object], stats: PhaseStats, text: str | None) -> None:
    found = doubts([sample(**fields)], stats, WORKLOAD)
    assert (found == []) if text is None else any(text in f for f in found)


def test_a_warm_workload_may_hit_the_cache() -> None:
    warm: Workload = from_spec({"cache": "warm"})
    assert doubts([sample(cached_tokens=20)], CALM, warm) == []


def test_repeats_say_how_sure_one_start_is_of_its_speed() -> None:
    rng = random.Random(3)
    covered = 0
    for _ in range(400):
        drawn = {p: [v * math.exp(rng.gauss(0, 0.05)) for _ in range(3)] for p, v in (("a", 50.0), ("b", 90.0))}
        found = speed_interval(drawn)
        covered += found["output_tok_s_ci_low"] <= math.sqrt(50.0 * 90.0) <= found["output_tok_s_ci_high"]
    assert 0.92 < covered / 400 < 0.98
    assert speed_interval({"a": [50.0], "b": [90.0]}) == {}, "without repeats nothing is known"
