"""The cause of a failure: first in time, by stage, not the last line; none for a healthy server."""

from __future__ import annotations

import importlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.engines import anyengine
from optimizer.engines.base import Blame, Explanation, FailureContext
from optimizer.engines.policy import POLICIES
from tests.unit.engines_logs.cases import CASES, Case
from tests.unit.engines_logs.snippets import SNIPPETS
from tests.unit.engines_logs.snippets_by_cause import BY_CAUSE


def explain(case: Case, text: str | None = None) -> Explanation:
    module = importlib.import_module(f"optimizer.engines.{case.engine}.failures")
    result = module.explain(case.text if text is None else text, FailureContext(exit_code=case.exit_code))
    assert isinstance(result, Explanation)
    return result


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_label(case: Case) -> None:
    found = explain(case)
    assert found.label == case.label, (found.summary, found.evidence)
    assert found.engine == case.engine
    assert "{" not in found.summary and "{" not in found.remedy
    if case.label == "none":
        assert not found.retry and not found.stop_study
    else:
        assert found.remedy and found.summary
        assert "\n" not in found.summary
        assert isinstance(found.blame, Blame)


@pytest.mark.parametrize(("engine", "labels", "text", "exit_code"), (*SNIPPETS, *BY_CAUSE), ids=lambda v: str(v)[-40:])
@pytest.mark.parametrize("known", (True, False), ids=("engine told", "engine unknown"))
def test_snippets(engine: str, labels: str, text: str, exit_code: int | None, known: bool) -> None:
    module = importlib.import_module(f"optimizer.engines.{engine}.failures") if known else anyengine
    found = module.explain(text, FailureContext(exit_code=exit_code))
    silent_only = {"low_acceptance", "spec_inactive"}
    if not known and silent_only & set(labels.split("|")):
        return
    assert found.label in labels.split("|"), found.summary


def case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)


@pytest.mark.parametrize(
    "name", ("graph", "vllm weights", "host oom rank", "nccl shm", "abi", "llama kv", "eagle weights")
)
def test_colours_prefixes_and_wrapping_change_nothing(name: str) -> None:
    original = case(name)
    lines = original.text.splitlines()
    coloured = "\n".join(f"\x1b[31m{line}\x1b[0m" for line in lines)
    contained = "\r\n".join(f"engine-1  | {line}" for line in lines)
    wrapped = "\n".join("\n".join(line[i : i + 97] for i in range(0, max(1, len(line)), 97)) for line in lines)
    for damaged in (coloured, contained, wrapped):
        assert explain(original, damaged).label == original.label


@pytest.mark.parametrize("name", ("graph", "vllm weights", "nccl watchdog", "sglang heads", "vllm runtime"))
def test_later_noise_does_not_hide_the_first_cause(name: str) -> None:
    original = case(name)
    noise = (
        "[rank2]:[W302 08:06:00.1 TCPStore.cpp:125] [c10d] recvValue failed: Connection reset by peer\n"
        "BrokenPipeError: [Errno 32] Broken pipe\n"
        "EOFError\n"
        "OSError: [Errno 98] Address already in use\n"
        "Killed\n"
    )
    assert explain(original, original.text + noise).label == original.label


def test_ranks_concatenated_out_of_order_are_sorted_by_their_clocks() -> None:
    rank1 = "[2026-03-02 08:05:09 TP1] RuntimeError: NCCL error: unhandled system error\n"
    rank0 = "[2026-03-02 08:05:01 TP0] RuntimeError: Not enough memory. Please try to increase "
    "--mem-fraction-static.\n"
    text = case("healthy sglang").text.split("[2026-03-02 08:01:14")[0]
    module = importlib.import_module("optimizer.engines.sglang.failures")
    assert module.explain(text + rank1 + rank0, FailureContext()).label == "oom_kv_cache"


@pytest.mark.parametrize(
    ("name", "word"),
    (
        ("kv text", "raise --mem-fraction-static"),
        ("graph", "lower --mem-fraction-static"),
        ("runtime", "lower --mem-fraction-static"),
        ("vllm no blocks", "raise --gpu-memory-utilization"),
        ("vllm capture", "lower --gpu-memory-utilization"),
        ("llama kv", "-ctk q8_0"),
        ("car", "--disable-custom-all-reduce"),
        ("llama removed", "--spec-draft-n-min"),
    ),
)
def test_remedies_name_the_engines_own_parameters(name: str, word: str) -> None:
    assert word in explain(case(name)).remedy


def test_remedy_uses_the_spelling_and_value_of_the_study() -> None:
    module = importlib.import_module("optimizer.engines.sglang.failures")
    config = {"cuda-graph-max-bs": 512, "mem-fraction-static": 0.93}
    found = module.explain(case("graph").text, FailureContext(config=config))
    assert "--cuda-graph-max-bs (now 512)" in found.remedy
    assert "--mem-fraction-static (now 0.93)" in found.remedy


def test_context_sharpens_a_silent_death() -> None:
    module = importlib.import_module("optimizer.engines.sglang.failures")
    boot = case("silent exit").text
    killed = module.explain(boot, FailureContext(exit_code=137))
    proven = module.explain(
        boot, FailureContext(signal=9, kernel_log="Out of memory: Killed process 4242 (sglang::schedul)")
    )
    assert (killed.label, proven.label) == ("killed_host_oom", "killed_host_oom")
    assert proven.confidence > killed.confidence
    assert module.explain(boot, FailureContext(phase="startup")).label == "health_never_ready"
    assert module.explain(boot, FailureContext(exit_code=143)).label == "none"
    broken = module.explain(
        boot, FailureContext(exit_code=1, kernel_log="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off")
    )
    assert broken.label == "environment_broken" and broken.stop_study
    assert (
        module.explain(case("graph").text, FailureContext(kernel_log="Killed process 1 (x)")).label
        == "oom_cuda_graph_capture"
    )


def test_same_memory_text_by_phase() -> None:
    module = importlib.import_module("optimizer.engines.vllm.failures")
    bare = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert module.explain(bare, FailureContext(phase="benchmark")).label == "oom_runtime"
    assert module.explain(bare, FailureContext(phase="startup")).label == "oom_weights"


def test_llamacpp_silent_segfault_is_told_from_the_flags() -> None:
    module = importlib.import_module("optimizer.engines.llamacpp.failures")
    boot = "0.00.005.289 I srv    load_model: loading model '/m.gguf'\n"
    config = {"flash-attn": "off", "cache-type-k": "q8_0", "cache-type-v": "q8_0"}
    found = module.explain(boot, FailureContext(exit_code=139, config=config))
    assert (found.label, found.blame) == ("unsupported_combination", Blame.CONFIG)
    plain = module.explain(boot, FailureContext(signal=11, config={}))
    assert (plain.label, plain.blame) == ("scheduler_crash", Blame.ENGINE)


def test_only_what_passes_is_retried_and_only_config_teaches() -> None:
    for label, policy in POLICIES.items():
        assert policy.retry == (policy.blame is Blame.INFRASTRUCTURE and label != "disk_or_shm_full"), label
    assert explain(case("nccl setting")).blame is Blame.CONFIG
    assert not explain(case("nccl setting")).retry
    assert explain(case("nccl system")).retry
    assert explain(case("hub down")).retry


def test_evidence_quotes_the_decisive_line() -> None:
    for each in CASES:
        found = explain(each)
        if each.label not in ("none", "unknown", "low_acceptance"):
            assert found.evidence and all(line in each.text for line in found.evidence), each.name
            assert len(found.evidence) <= 6


@settings(max_examples=150, deadline=None)
@given(
    data=st.one_of(st.binary(max_size=300).map(lambda b: b.decode("latin-1")), st.text(max_size=300)),
    which=st.sampled_from(CASES),
    at=st.integers(0, 2000),
)
def test_any_text_is_survived(data: str, which: Case, at: int) -> None:
    explain(which, which.text[:at] + data + which.text[at:])


@pytest.mark.parametrize("engine", ("sglang", "vllm", "llamacpp"))
def test_large_and_hostile_logs_are_read_in_seconds(engine: str) -> None:
    module = importlib.import_module(f"optimizer.engines.{engine}.failures")
    hostile = (
        ("error " * 3000 + "\n") * 20
        + "a" * 500_000
        + "\n"
        + ("[" * 5000 + "\n") * 50
        + "--x"
        + "=a" * 9000
        + "  y\n"
        + (" " * 5000 + "x\n") * 50
    )
    varied = "".join(
        f"[2026-03-02 08:00:{i % 60:02d} TP{i % 8}] Error {i}: thing {i:x} failed at {i * 7}\n" for i in range(60_000)
    )
    start = time.process_time()
    module.explain(hostile, FailureContext())
    module.explain(varied, FailureContext())
    assert time.process_time() - start < 30  # seconds on a quiet core; the bound only catches blow-ups


@pytest.mark.parametrize("prefix", ("> ", "llm-1  | ", "2026-01-01T01:01:01.1Z stderr F "))
@pytest.mark.parametrize("row", BY_CAUSE, ids=lambda row: str(row[2])[-40:])
def test_a_log_that_was_quoted_or_contained_is_read_alike(prefix: str, row: tuple[str, str, str, int | None]) -> None:
    engine, labels, text, exit_code = row
    module = importlib.import_module(f"optimizer.engines.{engine}.failures")
    contained = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    assert module.explain(contained, FailureContext(exit_code=exit_code)).label in labels.split("|")


def test_unknown_engine_is_explained_without_flags() -> None:
    found = anyengine.explain(case("graph").text, FailureContext())
    assert (found.engine, found.label) == ("unknown", "oom_cuda_graph_capture")
    assert "--" not in found.remedy.replace("---", "")


def test_a_missing_draft_does_not_stop_the_study() -> None:
    module = importlib.import_module("optimizer.engines.sglang.failures")
    text = "OSError: /models/nope is not a local folder and is not a valid model identifier\n"
    frames = '  File "/x/sglang/srt/speculative/eagle_worker.py", line 40, in __init__\n'
    assert module.explain(text, FailureContext()).stop_study
    assert not module.explain(frames + text, FailureContext()).stop_study
    llama = importlib.import_module("optimizer.engines.llamacpp.failures")
    target = (
        "gguf_init_from_file: failed to open GGUF file '/m.gguf'\nsrv load_model: failed to load model, '/m.gguf'\n"
    )
    assert llama.explain(target, FailureContext()).stop_study
    assert not llama.explain(target.replace("load model,", "load draft model,"), FailureContext()).stop_study


def test_messages_keep_their_capitals() -> None:
    found = explain(case("vllm bad choice"))
    assert "'fp7' (choose from" in found.summary


def test_an_exception_about_a_decode_batch_is_no_sign_of_life() -> None:
    module = importlib.import_module("optimizer.engines.sglang.failures")
    text = case("silent exit").text + "RuntimeError: frontier count does not match decode batch size.\n"
    assert module.explain(text, FailureContext()).label == "scheduler_crash"
