"""What engines answered, recorded: their own argument code on command lines drawn from our presets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optimizer.engines.base import FlagValue, Verdict
from optimizer.engines.flag_catalogue import read_command_line
from optimizer.engines.hardware import known_gpu
from optimizer.engines.registry import find_engine

DATA = Path(__file__).parent / "data"
MODELS: dict[str, dict[str, Any]] = {
    "cfg-llama31-8b": {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 131072},
    "cfg-qwen3-30b-a3b": {"architectures": ["Qwen3MoeForCausalLM"], "max_position_embeddings": 40960},
    "cfg-deepseek-v3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "kv_lora_rank": 512,
        "num_nextn_predict_layers": 1,
        "max_position_embeddings": 163840,
        "quantization_config": {"quant_method": "fp8"},
    },
}
GPUS = 8


def rows(engine: str) -> list[dict[str, Any]]:
    text = (DATA / f"{engine}_answers.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def same(ours: FlagValue | None, theirs: Any) -> bool:
    """Absence and false are one; numbers are equal by value."""
    if ours in (None, False) and theirs in (None, False):
        return True
    return str(ours) == str(theirs) or (not isinstance(theirs, str | bool | None) and float(str(ours)) == theirs)


def disagreement(engine: str, row: dict[str, Any]) -> str:
    words: list[str] = row["argv"]
    config, rest = read_command_line(engine, words, row["version"])
    asked = {**config, **{f"env.{k}": v for k, v in row.get("env", {}).items()}}
    model = MODELS[next(w for w in words if w in MODELS)]
    result = find_engine(engine).effective(asked, row["version"], known_gpu(row["gpu"], count=GPUS), model=model)
    rejected = result.verdict is Verdict.REJECTED or bool(rest)
    if rejected != row["rejected"]:
        return f"{words}: the engine {'rejects' if row['rejected'] else 'accepts'}, we say {result.reasons or rest}"
    if rejected:
        assert result.reasons or rest
        return ""
    if "final" in row:
        shown = {n: result.config.get(n, False if n == "async-scheduling" else None) for n in row["final"]}
        wrong = [n for n, value in row["final"].items() if not same(shown[n], value)]
        return f"{words}: {wrong}: engine {row['final']}, we {shown}" if wrong else ""
    ours = {a.flag: a.becomes for a in result.adjustments}
    theirs: dict[str, Any] = row["changes"]
    wrong = [n for n in {*ours, *theirs} if n not in ours or n not in theirs or not same(ours[n], theirs[n])]
    return f"{words}: {wrong}: engine {theirs}, we {ours}" if wrong else ""


@pytest.mark.parametrize(
    ("version", "gpu"), sorted({(r["version"], r["gpu"]) for r in rows("sglang")}), ids=lambda v: str(v)
)
def test_sglang_says_the_same(version: str, gpu: str) -> None:
    chosen = [r for r in rows("sglang") if (r["version"], r["gpu"]) == (version, gpu)]
    assert any(r["rejected"] for r in chosen)
    assert any(r["changes"] for r in chosen)
    wrong = [text for row in chosen if (text := disagreement("sglang", row))]
    assert not wrong, "\n".join(wrong)


def test_vllm_says_the_same() -> None:
    chosen = rows("vllm")
    assert any(r["rejected"] for r in chosen)
    wrong = [text for row in chosen if (text := disagreement("vllm", row))]
    assert not wrong, "\n".join(wrong)
