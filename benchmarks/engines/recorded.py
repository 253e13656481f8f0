"""What engines answered, recorded: their own argument code on command lines drawn from our presets.

Decides when an answer of ours and a recorded one are the same; drawing and asking is done by `sglang_agreement` and
`vllm_agreement`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from optimizer.engines.base import FlagValue, Verdict
from optimizer.engines.flag_catalogue import read_command_line
from optimizer.engines.hardware import known_gpu
from optimizer.engines.registry import find_engine

DATA = Path(__file__).parents[2] / "tests" / "unit" / "engines" / "data"
ENGINES = ("sglang", "vllm")
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
    """Return the recorded answers of one engine."""
    text = (DATA / f"{engine}_answers.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def same(ours: FlagValue | None, theirs: Any) -> bool:
    """Compare two values: absence and false are one, numbers are equal by value."""
    if ours in (None, False) and theirs in (None, False):
        return True
    if isinstance(theirs, int | float) and isinstance(ours, int | float):
        return abs(float(ours) - float(theirs)) < 1e-6
    return str(ours) == str(theirs)


def differing(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Return the names that only one side has, or that have other values."""
    return sorted(n for n in {*ours, *theirs} if n not in ours or n not in theirs or not same(ours[n], theirs[n]))


def disagreement(engine: str, row: dict[str, Any]) -> str:
    """Return how our answer to a recorded command line differs from the engine's; empty when it does not."""
    words: list[str] = row["argv"]
    config, rest = read_command_line(engine, words, row["version"])
    asked = {**config, **{f"env.{k}": v for k, v in row.get("env", {}).items()}}
    model = MODELS[next(w for w in words if w in MODELS)]
    result = find_engine(engine).effective(asked, row["version"], known_gpu(row["gpu"], count=GPUS), model=model)
    rejected = result.verdict is Verdict.REJECTED or bool(rest)
    if rejected != row["rejected"]:
        return f"{words}: the engine {'rejects' if row['rejected'] else 'accepts'}, we say {result.reasons or rest}"
    if rejected:
        return "" if result.reasons or rest else f"{words}: rejected without a reason"
    if "final" in row:
        theirs = row["final"]
        ours = {n: result.config.get(n, False if n == "async-scheduling" else None) for n in theirs}
    else:
        theirs, ours = row["changes"], {a.flag: a.becomes for a in result.adjustments}
    wrong = differing(ours, theirs)
    return f"{words}: {wrong}: engine {theirs}, we {ours}" if wrong else ""
