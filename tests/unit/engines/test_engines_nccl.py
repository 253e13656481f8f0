"""NCCL's variables in requests: refused, idle, or part of the server."""

from __future__ import annotations

import pytest

from optimizer.engines.base import Hardware, Verdict
from optimizer.engines.registry import find_engine

PARALLEL = {"sglang": "tp-size", "vllm": "tensor-parallel-size"}
each = pytest.mark.parametrize("engine", sorted(PARALLEL))


@each
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_PROTO", "LL256"),
        ("NCCL_ALGO", "Star"),
        ("NCCL_ALGO", "allreduce:ring;broadcast:none"),
    ],
)
def test_values_that_nccl_refuses_are_rejected(engine: str, name: str, value: str) -> None:
    config = {PARALLEL[engine]: 2, f"env.{name}": value}
    result = find_engine(engine).effective(config, None, Hardware())
    assert result.verdict is Verdict.REJECTED
    assert name in result.reasons[0]


@each
@pytest.mark.parametrize("value", ["LL", "ll,simple", "^LL128", "allreduce:ring,tree;broadcast:^ring"])
def test_lists_exclusions_and_functions_are_read(engine: str, value: str) -> None:
    name = "NCCL_ALGO" if "ring" in value else "NCCL_PROTO"
    config = {PARALLEL[engine]: 2, f"env.{name}": value}
    result = find_engine(engine).effective(config, None, Hardware())
    assert result.verdict is Verdict.ACCEPTED
    assert result.config[f"env.{name}"] == value


@each
def test_a_level_that_nccl_ignores_makes_no_other_server(engine: str) -> None:
    module = find_engine(engine)
    plain = module.effective({PARALLEL[engine]: 2}, None, Hardware())
    misspelt = module.effective({PARALLEL[engine]: 2, "env.NCCL_P2P_LEVEL": "sys"}, None, Hardware())
    known = module.effective({PARALLEL[engine]: 2, "env.NCCL_P2P_LEVEL": "SYS"}, None, Hardware())
    assert misspelt.no_effect == ("env.NCCL_P2P_LEVEL",)
    assert misspelt.key == plain.key != known.key


@each
def test_one_gpu_reads_none_of_them(engine: str) -> None:
    module = find_engine(engine)
    alone = module.effective({"env.NCCL_PROTO": "LL", "disable-custom-all-reduce": True}, None, Hardware())
    assert alone.key == module.effective({}, None, Hardware()).key
    assert set(alone.no_effect) == {"env.NCCL_PROTO", "disable-custom-all-reduce"}
