"""What a running vLLM says of itself, and failures that only its CPU backend knows."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.engines.base import Blame, Config, FailureContext, Hardware
from optimizer.engines.flag_catalogue import read_command_line
from optimizer.engines.registry import find_engine
from optimizer.readiness import differences

ENGINE = find_engine("vllm")
PREFIX = "(EngineCore pid=42) INFO 03-02 08:00:09 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "


def engine_line(speculation: str = "None", eager: bool = True, caching: bool = True, graphs: str = "NONE: 0") -> str:
    return (
        f"{PREFIX}model='/m', speculative_config={speculation}, tokenizer='/m', dtype=torch.bfloat16, max_seq_len=2048,"
        f" tensor_parallel_size=2, data_parallel_size=1, quantization=None, enforce_eager={eager}, "
        "observability_config=ObservabilityConfig(enable_mfu_metrics=False), kv_cache_dtype=fp8, seed=0, "
        f"enable_prefix_caching={caching}, enable_chunked_prefill=True, pooler_config=None, "
        f"compilation_config={{'mode': <CompilationMode.NONE: 0>, 'cudagraph_mode': <CUDAGraphMode.{graphs}>, "
        "'compile_sizes': None}, kernel_config=KernelConfig(enable_jit_warmup=False)\n"
    )


def test_the_help_lists_the_flags_of_every_group() -> None:
    assert ENGINE.help_argv(["/opt/vllm/bin/vllm", "serve"]) == ["/opt/vllm/bin/vllm", "serve", "--help=all"]
    groups = "usage: vllm serve [model_tag] [options]\n  --help=listgroup\nFor more: --help=ModelConfig\n"
    flags = "CacheConfig:\n  --block-size BLOCK_SIZE   Size of a block.\n  --enforce-eager, --no-enforce-eager\n"
    assert not {"block-size", "enforce-eager"} & ENGINE.check_help(groups)
    assert {"block-size", "enforce-eager", "no-enforce-eager"} <= ENGINE.check_help(flags)


def test_the_log_tells_the_resolved_configuration() -> None:
    spec = "SpeculativeConfig(method='ngram', model=None, num_spec_tokens=5)"
    text = "INFO [scheduler.py:308] Chunked prefill is enabled with max_num_batched_tokens=4096.\n" + engine_line(spec)
    assert ENGINE.running_from_log(text) == {
        "spec-method": "ngram",
        "spec-tokens": "5",
        "max-model-len": 2048,
        "tensor-parallel-size": 2,
        "data-parallel-size": 1,
        "kv-cache-dtype": "fp8",
        "enforce-eager": True,
        "enable-prefix-caching": True,
        "enable-chunked-prefill": True,
        "cudagraph-mode": "NONE",
        "max-num-batched-tokens": 4096,
    }


@pytest.mark.parametrize("text", ["", "INFO: Application startup complete.\n", PREFIX])
def test_a_log_without_the_line_tells_nothing(text: str) -> None:
    assert not ENGINE.running_from_log(text)


def test_speculation_that_was_dropped_differs_from_the_plan() -> None:
    asked: Config = {"model": "/m", "spec-method": "ngram", "spec-tokens": 5}
    planned = ENGINE.effective(asked, "0.32.0", Hardware()).config
    assert differences(planned, ENGINE.running_from_log(engine_line()))["spec-method"] == ("ngram", "none")
    running = ENGINE.running_from_log(engine_line("SpeculativeConfig(method='ngram', model=None, num_spec_tokens=5)"))
    assert not {"spec-method", "spec-tokens"} & set(differences(planned, running))


def test_switches_are_compared_under_either_spelling() -> None:
    planned = ENGINE.effective({"model": "/m", "no-enable-prefix-caching": True}, "0.32.0", Hardware()).config
    assert differences(planned, ENGINE.running_from_log(engine_line()))["enable-prefix-caching"] == (False, True)
    assert "enable-prefix-caching" not in differences(planned, ENGINE.running_from_log(engine_line(caching=False)))


ERROR = "(EngineCore pid=42) ERROR 03-02 08:00:20 [core.py:1196] "
LAST = "(APIServer pid=41) RuntimeError: Engine core initialization failed. See root cause above."
NO_ROOM = (
    "Available memory on node 0 (11.2/15.5 GiB) on kv cache allocation is less than requested memory for kv (64.0 GiB)"
)
NO_NODES = "Not enough allowed NUMA nodes to bind threads of 4 local CPUWorkers. Allowed NUMA nodes are [0, 1]."
TOO_LONG = (
    "User-specified max_model_len (65536) is greater than the derived max_model_len (max_position_embeddings=4096)"
)


@pytest.mark.parametrize(
    ("line", "label", "word"),
    [
        (f"{ERROR}ValueError: {NO_ROOM}", "oom_kv_cache", "VLLM_CPU_KVCACHE_SPACE"),
        (f"{ERROR}AssertionError: {NO_NODES}", "unsupported_combination", "tensor-parallel-size"),
        (f"(APIServer pid=41)   Value error, {TOO_LONG}", "unsupported_combination", "max-model-len"),
    ],
)
def test_refusals_of_the_cpu_backend_are_the_configurations_fault(line: str, label: str, word: str) -> None:
    context = FailureContext(exit_code=1, phase="startup", config={"max-model-len": 65536})
    found = ENGINE.explain(f"{engine_line()}{line}\n{LAST}\n", context)
    assert (found.label, found.blame, found.retry, found.stop_study) == (label, Blame.CONFIG, False, False)
    assert word in found.remedy
    assert any(line[-40:] in quoted for quoted in found.evidence)


def test_a_semaphore_that_vanished_is_no_missing_model() -> None:
    text = (
        f"{engine_line()}Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 132, in _main\n'
        "    self = reduction.pickle.load(from_parent)\n"
        '  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 115, in __setstate__\n'
        "    self._semlock = _multiprocessing.SemLock._rebuild(*state)\n"
        f"FileNotFoundError: [Errno 2] No such file or directory\n{LAST}\n"
    )
    found = ENGINE.explain(text, FailureContext(exit_code=1, phase="startup"))
    assert (found.label, found.blame, found.retry) == ("disk_or_shm_full", Blame.INFRASTRUCTURE, True)
    assert not found.stop_study and "semaphore" in found.summary


def test_a_missing_draft_is_one_choice_of_many() -> None:
    text = (
        "(APIServer pid=41) ERROR 03-02 08:00:04 [repo_utils.py:124] Error retrieving file list: Repo id must be in the"
        " form 'repo_name' or 'namespace/repo_name': '/m/head'.\n"
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        "  Value error, Invalid repository ID or local directory specified: '/m/head'.\n"
        "Please verify the following requirements:\n1. Provide a valid repository ID.\n\n2. Or a directory.\n"
        " [type=value_error, input_value=ArgsKwargs((), {'model': '/m'}), input_type=ArgsKwargs]\n"
    )
    found = ENGINE.explain(text, FailureContext(exit_code=1, phase="startup"))
    assert (found.label, found.blame, found.stop_study) == ("model_not_found", Blame.CONFIG, False)
    assert "/m/head" in found.summary


def test_a_list_of_json_objects_stays_whole_words() -> None:
    adapters = '{"name": "a b", "path": "/p"} c=/q'
    words = ENGINE.flags_to_argv({"lora-modules": adapters, "cudagraph-capture-sizes": "1 2"})
    assert words == ["--lora-modules", '{"name": "a b", "path": "/p"}', "c=/q", "--cudagraph-capture-sizes", "1", "2"]
    assert read_command_line("vllm", words, None)[0]["lora-modules"] == adapters
    assert ENGINE.flags_to_argv({"lora-modules": "{x y"}) == ["--lora-modules", "{x", "y"]


def test_a_value_that_looks_like_a_flag_is_no_flag() -> None:
    words = ENGINE.flags_to_argv({"hf-config-path": "-x7Q", "max-model-len": -1})
    assert words == ["--hf-config-path=-x7Q", "--max-model-len", "-1"]
    assert read_command_line("vllm", words, None)[0] == {"hf-config-path": "-x7Q", "max-model-len": "-1"}


def test_numbers_read_off_a_command_line_are_numbers_inside_json() -> None:
    asked, _ = read_command_line("vllm", ["--spec-method", "ngram", "--spec-tokens", "4"], None)
    assert ENGINE.flags_to_argv(asked) == [
        "--speculative-config",
        '{"method": "ngram", "num_speculative_tokens": 4}',
    ]
    assert "many" in ENGINE.flags_to_argv({"spec-tokens": "many"})[1]


def test_of_several_names_the_first_proves_who_answers() -> None:
    plan = ENGINE.launch_plan(
        ["vllm", "serve"], {"model": "m"}, None, ENGINE.effective({"model": "m"}, None, Hardware()), "chat gpt-4"
    )
    assert plan.argv[-3:] == ("--served-model-name", "chat", "gpt-4") and plan.served_model == "chat"
    assert ENGINE.identity_matches({"data": [{"id": "chat"}, {"id": "gpt-4"}]}, plan.served_model)


def test_pipeline_stages_on_the_first_runner_switch_asynchronous_scheduling_off_unless_asked_for() -> None:
    def scheduling(**flags: Any) -> Any:
        found = ENGINE.effective({"model": "m", "tensor-parallel-size": 2, **flags}, "0.32.0", Hardware())
        return found.config.get("async-scheduling", False)

    stages = {"pipeline-parallel-size": 2}
    first = stages | {"env.VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert scheduling() and scheduling(**stages)
    assert not scheduling(**first) and scheduling(**first, **{"async-scheduling": True})
