"""Throughput records: every format, any damage; nothing is invented."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.engines.llamacpp import telemetry as llamacpp
from optimizer.engines.sglang import telemetry as sglang
from optimizer.engines.vllm import telemetry as vllm

DECODE = (
    "[2026-03-02 08:02:01 DP3 TP11 EP2] Decode batch, #running-req: 17, #token: 20481, token usage: 0.37, "
    "accept len: 2.81, "
    "accept rate: 0.45, pre-allocated usage: 0.11, #prealloc-req: 2, #transfer-req: 1, #retracted-req: 4, cuda "
    "graph: False, "
    "gen throughput (token/s): 1310.25, #queue-req: 6"
)
DECODE_VALUES = {
    "kind": "decode",
    "dp_rank": 3,
    "tp_rank": 11,
    "ep_rank": 2,
    "running_req": 17,
    "token": 20481,
    "token_usage": 0.37,
    "accept_len": 2.81,
    "accept_rate": 0.45,
    "prealloc_usage": 0.11,
    "prealloc_req": 2,
    "transfer_req": 1,
    "retracted_req": 4,
    "graph": False,
    "gen_throughput": 1310.25,
    "queue_req": 6,
}
PREFILL = (
    "[2026-03-02 08:02:00 TP0] Prefill batch, #new-seq: 2, #new-token: 812, #cached-token: 64, full token "
    "usage: 0.10, "
    "mamba usage: 0.20, #running-req: 3, #queue-req: 1, #pending-token: 99, npu graph: True, input throughput "
    "(token/s): 5123.50"
)
PREFILL_VALUES = {
    "kind": "prefill",
    "tp_rank": 0,
    "new_seq": 2,
    "new_token": 812,
    "cached_token": 64,
    "full_token_usage": 0.1,
    "mamba_usage": 0.2,
    "running_req": 3,
    "queue_req": 1,
    "pending_token": 99,
    "graph": True,
    "input_throughput": 5123.5,
}
STATS = (
    "(APIServer pid=11) INFO 03-02 08:01:30 [loggers.py:127] Engine 003: Avg prompt throughput: 210.3 tokens/s, "
    "Avg generation "
    "throughput: 340.5 tokens/s, Running: 4 reqs, Waiting: 2 reqs, GPU KV cache usage: 1.2%, Prefix cache hit "
    "rate: 12.5%"
)
STATS_VALUES = {
    "kind": "throughput",
    "engine": 3,
    "prompt_tps": 210.3,
    "gen_tps": 340.5,
    "running": 4,
    "waiting": 2,
    "kv_cache_usage_pct": 1.2,
    "prefix_hit_pct": 12.5,
}
SPEC = (
    "INFO 03-02 08:01:30 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.40, Accepted "
    "throughput: 70.10 tokens/s, "
    "Drafted throughput: 150.30 tokens/s, Accepted: 701 tokens, Drafted: 1503 tokens, Per-position acceptance "
    "rate: 0.801, 0.402, "
    "0.197, Avg Draft acceptance rate: 46.6%"
)
SPEC_VALUES = {
    "kind": "spec",
    "mean_accept_len": 2.4,
    "accepted_tps": 70.1,
    "drafted_tps": 150.3,
    "accepted": 701,
    "drafted": 1503,
    "per_position": [0.801, 0.402, 0.197],
    "accept_rate": 0.466,
}
SLOT = (
    "0.02.251.896 I slot print_timing: id  2 | task 41 | prompt eval time =     232.14 ms /    49 tokens (    "
    "4.74 ms per token,   "
    "211.08 tokens per second)\n"
    "0.02.251.920 I slot print_timing: id  2 | task 41 |        eval time =    1477.35 ms /    96 tokens (   "
    "15.39 ms per token,    "
    "64.98 tokens per second)\n"
    "0.02.251.935 I slot print_timing: id  2 | task 41 | draft acceptance = 0.93421 (   71 accepted /    76 "
    "generated), "
    "mean len =  4.55"
)
SLOT_VALUES = {
    "kind": "timing",
    "slot": 2,
    "task": 41,
    "prompt_ms": 232.14,
    "prompt_tokens": 49,
    "prompt_tps": 211.08,
    "gen_ms": 1477.35,
    "gen_tokens": 96,
    "gen_tps": 64.98,
    "accept_rate": 0.93421,
    "accepted": 71,
    "drafted": 76,
    "mean_accept_len": 4.55,
}
READERS = {"sglang": sglang, "vllm": vllm, "llamacpp": llamacpp}
SAMPLES = (
    ("sglang", DECODE, DECODE_VALUES),
    ("sglang", PREFILL, PREFILL_VALUES),
    ("vllm", STATS, STATS_VALUES),
    ("vllm", SPEC, SPEC_VALUES),
    ("llamacpp", SLOT, SLOT_VALUES),
)


def values(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "line"}


def colour(text: str, rng: random.Random) -> str:
    words = text.split(" ")
    at = rng.randrange(len(words))
    words[at] = f"\x1b[{rng.choice(('36', '1;31', '0'))}m{words[at]}\x1b[0m"
    return " ".join(words)


def contain(text: str, rng: random.Random) -> str:
    prefix = rng.choice(
        (
            "engine-1  | ",
            "2026-03-02T08:02:01.123456789Z ",
            "2026-03-02T08:02:01.123456789Z stderr F ",
            "Mar  2 08:02:01 gpu-1 run.sh[4242]: ",
            "(CommandActor pid=4242) ",
            "[default0]:",
            "vllm-0/server: ",
        )
    )
    return "\n".join(prefix + line for line in text.split("\n"))


def wrap(text: str, rng: random.Random) -> str:
    width = rng.randrange(70, 140)
    return "\n".join("\n".join(line[i : i + width] for i in range(0, len(line), width)) for line in text.split("\n"))


def carriage(text: str, rng: random.Random) -> str:
    return "Loading shards:  50%|#####     | 1/2\r" + text.replace("\n", "\r\n") + "\r\n"


def decimal_comma(text: str, rng: random.Random) -> str:
    import re

    return re.sub(
        r"(\d)\.(\d+)(?= tokens/s|%|, (?:accept|pre-|cuda|npu|full|mamba|#)| ms|"
        r" tokens per)",
        r"\1,\2",
        text,
    )


DAMAGE = (colour, contain, wrap, carriage, decimal_comma)


@pytest.mark.parametrize(
    ("engine", "text", "expected"), SAMPLES, ids=lambda v: v if isinstance(v, str) and len(v) < 9 else ""
)
def test_reads_every_value(engine: str, text: str, expected: dict[str, Any]) -> None:
    (record,) = READERS[engine].read_log(text)
    assert values(record) == expected
    assert record["line"] == 1


@settings(max_examples=200, deadline=None)
@given(
    sample=st.sampled_from(SAMPLES),
    damage=st.lists(st.sampled_from(DAMAGE), max_size=3, unique=True),
    seed=st.integers(0, 9999),
)
def test_damage_keeps_values(sample: tuple[str, str, dict[str, Any]], damage: list[Any], seed: int) -> None:
    engine, text, expected = sample
    rng = random.Random(seed)
    # As in life: a terminal never tears an escape apart, and a container's prefix is put on lines.
    order = sorted(damage, key=lambda d: (d is contain, d is not wrap))
    if contain in damage and wrap in damage:
        order = [d for d in order if d is not wrap]
    for step in order:
        text = step(text, rng)
    records = READERS[engine].read_log(text)
    assert [values(record) for record in records] == [expected]


def test_two_records_on_one_line() -> None:
    records = sglang.read_log(DECODE + PREFILL)
    assert [values(r) for r in records] == [DECODE_VALUES, PREFILL_VALUES]
    records = vllm.read_log(STATS + " " + SPEC)
    assert [values(r) for r in records] == [STATS_VALUES, SPEC_VALUES]


@given(cut=st.integers(0, len(DECODE)))
def test_a_cut_line_invents_nothing(cut: int) -> None:
    records = sglang.read_log(DECODE[:cut])
    for record in records:
        for key, value in values(record).items():
            whole = DECODE_VALUES[key]
            assert value == whole or str(whole).startswith(str(value).removesuffix(".0")), key


def test_middle_lost_gives_what_is_left() -> None:
    (record,) = sglang.read_log(
        "[2026-01-01 00:00:00 TP1] Decode batch, #running-req: 9, #token: 77, token usaccept rate: 0.25, #que"
    )
    assert values(record) == {"kind": "decode", "tp_rank": 1, "running_req": 9, "token": 77, "accept_rate": 0.25}


@pytest.mark.parametrize("old", ("Decode batch. ", "Decode batch [17], ", "Decode batch, "))
def test_sglang_heads_of_all_releases(old: str) -> None:
    (record,) = sglang.read_log(
        f"[2025-01-01 00:00:00 TP0] {old}#running-req: 1, #token: 512, token usage: 0.01, "
        "gen throughput (token/s): 245.10, #queue-req: 0, "
    )
    assert record["gen_throughput"] == 245.1 and record["token"] == 512 and "graph" not in record


def test_block_accept_len_is_another_value() -> None:
    (record,) = sglang.read_log(
        "Decode batch, #running-req: 1, block accept len: 3.50, accept len: 2.25, #queue-req: 0"
    )
    assert (record["accept_len"], record["block_accept_len"]) == (2.25, 3.5)


def test_vllm_old_formats() -> None:
    (old,) = vllm.read_log(
        "INFO 02-01 07:20:19 llm_engine.py:877] Avg prompt throughput: 10.0 tokens/s, Avg generation "
        "throughput: 20.5 tokens/s, "
        "Running: 5 reqs, Swapped: 1 reqs, Pending: 7 reqs, GPU KV cache usage: 98.9%, CPU KV cache usage: 3.0%"
    )
    assert old["waiting"] == 7 and old["kv_cache_usage_pct"] == 98.9 and "engine" not in old
    (spec,) = vllm.read_log(
        "Speculative metrics: Draft acceptance rate: 0.750, System efficiency: 0.500, Number of speculative "
        "tokens: 4, "
        "Number of accepted tokens: 75, Number of draft tokens: 100, Number of emitted tokens: 90."
    )
    assert (spec["accept_rate"], spec["accepted"], spec["drafted"], spec["emitted"]) == (0.75, 75, 100, 90)


def test_vllm_not_a_number_is_left_out() -> None:
    (record,) = vllm.read_log(
        "SpecDecoding metrics: Mean acceptance length: nan, Accepted: 0 tokens, Drafted: 0 tokens"
    )
    assert "mean_accept_len" not in record and record["drafted"] == 0


def test_llamacpp_old_and_progress() -> None:
    (old,) = llamacpp.read_log(
        "llama_perf_context_print:        load time =     500.00 ms\n"
        "llama_perf_context_print: prompt eval time =     100.00 ms /    10 tokens (   10.00 ms per token,   "
        "100.00 tokens per second)\n"
        "llama_perf_context_print:        eval time =    2000.00 ms /    50 runs   (   40.00 ms per token,    "
        "25.00 tokens per second)\n"
    )
    assert old["load_ms"] == 500.0 and old["gen_tokens"] == 50 and old["gen_tps"] == 25.0
    (progress,) = llamacpp.read_log(
        "2.02.846.974 I slot print_timing: id  1 | task 9 | n_decoded =    100, tg =  12.93 t/s, tg_3s =  12.57 t/s\n"
        "2.05.870.752 I slot print_timing: id  1 | task 9 | n_decoded =    150, tg =  12.90 t/s, tg_3s =  12.40 t/s\n"
    )
    assert progress["progress"] == {"n_decoded": 150, "tg_tps": 12.9, "tg_3s_tps": 12.4}
    (newer,) = llamacpp.read_log("1.2.3.4 I slot print_timing: id  1 | task 9 | n_gen =  77, tg =  8.10 t/s\n")
    assert newer["progress"] == {"n_decoded": 77, "tg_tps": 8.1}


def test_llamacpp_keeps_interleaved_requests_apart() -> None:
    other = SLOT.replace("id  2 | task 41", "id  0 | task 40")
    mixed = "\n".join(line for pair in zip(SLOT.split("\n"), other.split("\n"), strict=True) for line in pair)
    records = llamacpp.read_log(mixed)
    assert [(r["slot"], r["task"], r["accepted"]) for r in records] == [(2, 41, 71), (0, 40, 71)]


def test_llamacpp_without_task_numbers_starts_anew() -> None:
    lines = "prompt eval time = 10.00 ms / 5 tokens\n       eval time = 20.00 ms / 7 tokens\n"
    records = llamacpp.read_log(lines + lines)
    assert [r["gen_tokens"] for r in records] == [7, 7]


def test_summaries_leave_idle_lines_out() -> None:
    busy = DECODE.replace("1310.25", "1000.00")
    first = DECODE.replace("1310.25", "3.10")
    summary = sglang.summary(sglang.read_log("\n".join((first, busy, busy))))
    assert summary["gen_throughput"]["mean"] == 1000.0 and summary["gen_throughput_left_out"] == 1
    assert summary["graph_share"] == 0.0
    idle = STATS.replace("340.5", "0.0").replace("Running: 4", "Running: 0")
    assert vllm.summary(vllm.read_log(f"{idle}\n{STATS}"))["gen_tps"]["mean"] == 340.5
    assert llamacpp.summary(llamacpp.read_log(SLOT))["accept_rate"] == round(71 / 76, 6)
    one = "eval time = 0.00 ms / 1 tokens (0.00 ms per token, 1000000.00 tokens per second)\n"
    assert llamacpp.summary(llamacpp.read_log(one + SLOT))["gen_tps"]["max"] == 64.98


@settings(max_examples=200, deadline=None)
@given(
    data=st.one_of(st.binary(max_size=400).map(lambda b: b.decode("latin-1")), st.text(max_size=400)),
    splice=st.integers(0, 300),
)
def test_any_text_is_survived(data: str, splice: int) -> None:
    for engine, text, _ in SAMPLES:
        module = READERS[engine]
        module.summary(module.read_log(text[:splice] + data + text[splice:]))


@pytest.mark.parametrize(
    ("engine", "text", "expected"), SAMPLES[:1] + SAMPLES[2:3] + SAMPLES[4:], ids=["sglang", "vllm", "llamacpp"]
)
def test_megabytes_in_seconds(engine: str, text: str, expected: dict[str, Any]) -> None:
    log = (text + "\n" + "x" * 300 + "\n") * (4_000_000 // (len(text) + 302))
    start = time.process_time()
    READERS[engine].read_log(log)
    assert time.process_time() - start < 20  # a few seconds on a quiet core; the bound only catches blow-ups


REQUEST = (
    "slot print_timing: id  0 | task 7 | ",
    "prompt eval time =     100.00 ms /    10 tokens (   10.00 ms per token,   100.00 tokens per second)",
    "       eval time =    2000.00 ms /   100 tokens (   20.00 ms per token,    50.00 tokens per second)",
    "      total time =    2100.00 ms /   110 tokens",
)
OTHER = tuple(line.replace("2000.00", "9000.00").replace("2100.00", "9100.00") for line in REQUEST)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("llm-a_1  | ", "llm-b_1  | "),
        ("Mar 02 08:02:01 box llama-server[11]: ", "Mar 02 08:02:09 box llama-server[12]: "),
        ("2026-03-02T08:02:01.5Z stdout F pod/llm-a/main: ", "2026-03-02T08:02:02.7Z stdout F pod/llm-b/main: "),
    ],
)
def test_lines_of_two_servers_that_are_mixed_stay_two_records(first: str, second: str) -> None:
    mixed = [line for pair in zip(REQUEST, OTHER, strict=True) for line in (first + pair[0], second + pair[1])]
    one, other = llamacpp.read_log("\n".join(mixed))
    assert (one["gen_ms"], one["total_ms"]) == (2000.0, 2100.0)
    assert (other["gen_ms"], other["total_ms"]) == (9000.0, 9100.0)
    assert one["task"] == other["task"] == 7


def test_a_rank_with_less_to_do_is_not_taken_for_idle() -> None:
    line = "[2026-03-02 08:02:01 DP{} TP0] Decode batch, #running-req: 1, gen throughput (token/s): {}, #queue-req: 0"
    text = "\n".join(line.format(rank, speed) for rank, speed in ((0, 900.0), (1, 300.0)) for _ in range(3))
    found = sglang.summary(sglang.read_log(text))
    assert found["gen_throughput"]["samples"] == 6 and found["gen_throughput"]["mean"] == 600.0
