"""Versions, tables, names, hardware: the small parts that every engine stands on."""

from __future__ import annotations

import pytest

from optimizer.engines.argv import parse_argv, render_flags
from optimizer.engines.base import FlagValue, Hardware, Verdict
from optimizer.engines.flag_catalogue import flag_set, flag_table
from optimizer.engines.hardware import capability, find_gpu, known_gpu, memory_mib
from optimizer.engines.memory_fraction import memory_interval
from optimizer.engines.registry import ENGINE_NAMES, find_engine
from optimizer.engines.versions import nearest_known, version_key


def test_versions_sort_as_they_were_released() -> None:
    ascending = ["0.4.9", "0.4.9.post6", "0.5.2", "0.5.10", "0.5.12+cu130", "v0.6.0", "main"]
    assert sorted(ascending, key=version_key) == ascending
    assert version_key("b10068-571d0d5") > version_key("b9000")


def test_a_version_between_two_known_ones_is_read_like_the_older() -> None:
    known = ("0.4.9", "0.5.5", "0.5.12")
    assert [nearest_known(v, known) for v in ("0.5.7", "0.5.12", "0.9", "0.1", None)] == [
        *("0.5.5", "0.5.12", "0.5.12", "0.4.9", "0.5.12")
    ]


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_no_spelling_means_two_flags(engine: str) -> None:
    for version in flag_table(engine).versions:
        seen: dict[str, str] = {}
        for flag in flag_set(engine, version).flags:
            for spelling in flag.spellings:
                assert seen.setdefault(spelling, flag.name) == flag.name, (version, spelling)


def test_flags_come_and_go_with_versions() -> None:
    assert "cuda-graph-max-bs" in flag_set("sglang", "0.5.12")
    found = flag_set("sglang", "0.5.15").find("cuda-graph-max-bs")
    assert found is not None
    assert found[0].name == "cuda-graph-max-bs-decode"
    assert flag_set("sglang", "0.5.23").find("cuda-graph-max-bs") is None
    assert flag_set("sglang", "0.5.23").find("tensor-parallel-size") == flag_set("sglang", "0.5.23").find("tp-size")


def test_old_bare_flags_stand_for_values() -> None:
    engine = find_engine("sglang")
    host = known_gpu("h100", count=8)
    old = engine.effective({"disable-piecewise-cuda-graph": True}, "0.5.15", host)
    new = engine.effective({"disable-prefill-cuda-graph": True}, "0.5.15", host)
    assert old.key == new.key


def test_lists_are_several_words_in_every_version() -> None:
    every = flag_table("sglang").ever
    assert render_flags({"cuda-graph-bs": "1 2 4"}, every) == ["--cuda-graph-bs", "1", "2", "4"]
    assert render_flags({"cuda-graph-bs-decode": "1 8"}, every) == ["--cuda-graph-bs-decode", "1", "8"]
    read, rest = parse_argv(["--cuda-graph-bs", "1", "2", "4", "--tp-size", "2"], flag_set("sglang", "0.5.12"))
    assert (read, rest) == ({"cuda-graph-bs": "1 2 4", "tp-size": "2"}, [])


def test_negative_numbers_are_values() -> None:
    read, rest = parse_argv(["--chunked-prefill-size", "-1"], flag_set("sglang", None))
    assert (read, rest) == ({"chunked-prefill-size": "-1"}, [])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("h200", "h200"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("RTX 4090", "rtx4090"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H800", "h800"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
    ],
)
def test_gpus_are_known_by_the_drivers_names(name: str, key: str) -> None:
    model = find_gpu(name)
    assert model is not None
    assert model.key == key


def test_an_unknown_gpu_keeps_its_memory_only() -> None:
    host = Hardware(gpu_name="Quantum 9000", gpu_memory_gib=48.0, gpu_count=1)
    assert (capability(host), memory_mib(host)) == (None, 49152)
    assert memory_mib(Hardware()) is None
    assert memory_mib(known_gpu("h100", count=1)) == 81559


@pytest.mark.parametrize(
    ("engine", "config", "refused"),
    [
        ("sglang", {"tp-size": 4}, False),
        ("sglang", {"tp-size": 8}, True),
        ("sglang", {"tp-size": 4, "dp-size": 2}, True),
        ("sglang", {"tp-size": 4, "dp-size": 2, "enable-dp-attention": True}, False),
        ("sglang", {"tp-size": 2, "base-gpu-id": 3}, True),
        ("sglang", {"tp-size": 8, "nnodes": 2}, False),
        ("sglang", {"tp-size": 2, "env.CUDA_VISIBLE_DEVICES": "3"}, True),
        ("vllm", {"tensor-parallel-size": 4, "env.CUDA_VISIBLE_DEVICES": "0,1,2,3"}, False),
        ("vllm", {"tensor-parallel-size": 4, "env.CUDA_VISIBLE_DEVICES": "0,1"}, True),
        ("vllm", {"tensor-parallel-size": 4, "data-parallel-size": 2}, True),
        ("vllm", {"tensor-parallel-size": 4, "data-parallel-size": 2, "data-parallel-size-local": 1}, False),
        ("vllm", {"tensor-parallel-size": 8, "distributed-executor-backend": "ray"}, False),
    ],
)
def test_a_server_for_more_gpus_than_there_are_is_not_started(
    engine: str, config: dict[str, FlagValue], refused: bool
) -> None:
    found = find_engine(engine).effective(config, None, known_gpu("h100", count=4))
    assert ("GPUs are needed" in " ".join(found.reasons)) is refused
    assert "GPUs are needed" not in " ".join(find_engine(engine).effective(config, None, Hardware()).reasons)


@pytest.mark.parametrize(("processors", "refused"), [(4, True), (8, False), (0, False)])
def test_threads_that_would_only_wait_for_a_processor_are_not_tried(processors: int, refused: bool) -> None:
    found = find_engine("llamacpp").effective({"threads": 16}, None, Hardware(cpu_count=processors))
    assert bool(found.reasons) is refused


def test_rules_that_need_a_gpu_wait_until_it_is_known() -> None:
    engine = find_engine("sglang")
    config = {"attention-backend": "trtllm_mla"}
    assert engine.effective(config, "0.5.23", known_gpu("h100", count=1)).reasons
    assert not engine.effective(config, "0.5.23", known_gpu("b200", count=1)).reasons
    assert not engine.effective(config, "0.5.23", Hardware()).reasons
    assert memory_interval("vllm", [], {}) is not None


@pytest.mark.parametrize(
    ("version", "cache", "starts"),
    (
        ("0.5.15", "fp4_e2m1", True),
        ("0.5.18", "fp4_e2m1", False),
        ("0.5.20", "fp4_e2m1", False),
        ("0.5.20", "fp4_mx_block16", True),
    ),
)
def test_a_cache_type_that_only_the_parser_knows_is_refused(version: str, cache: str, starts: bool) -> None:
    asked = {"model-path": "m", "kv-cache-dtype": cache, "attention-backend": "triton"}
    for hardware in (known_gpu("h100", count=1), Hardware()):
        found = find_engine("sglang").effective(asked, version, hardware)
        assert (found.verdict is not Verdict.REJECTED) == starts, found.reasons
        assert starts or "fp4_mx_block16" in " ".join(found.reasons)


DENSE = {"architectures": ["LlamaForCausalLM"]}
LATENT = {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}


@pytest.mark.parametrize(
    ("kernel", "gpu", "model", "starts"),
    [
        ("flashmla", "h100", DENSE, False),
        ("flashmla", "h100", LATENT, True),
        ("cutlass_mla", "b200", DENSE, False),
        ("trtllm_mha", "b200", LATENT, False),
        ("trtllm_mha", "b200", DENSE, True),
        ("fa3", "h100", LATENT, True),
        ("fa3", "rtx4090", DENSE, True),
        ("fa3", "a100", LATENT, False),
        ("fa3", "b200", DENSE, False),
    ],
)
def test_kernels_that_the_model_or_the_gpu_cannot_use_are_not_started(
    kernel: str, gpu: str, model: dict[str, object], starts: bool
) -> None:
    engine, host = find_engine("sglang"), known_gpu(gpu, count=1)
    config: dict[str, FlagValue] = {"attention-backend": kernel}
    assert bool(engine.fails_at_start(config, host, model)) is not starts
    assert engine.fails_at_start(config, Hardware(), None) == []
