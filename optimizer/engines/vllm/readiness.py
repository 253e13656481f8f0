"""How a vLLM server proves that it answers, and what can be asked of it.

Decides paths and how the model list is read; polling and comparing are done elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import FlagValue, LaunchPlan, Readiness

LOG_HINTS = (
    r"Initializing a V1 LLM engine",
    r"Starting to load model",
    r"Loading weights took",
    r"Available KV cache memory|GPU KV cache size|CPU KV cache size",
    r"Capturing CUDA graphs",
    r"Graph capturing finished",
    r"init engine .* took",
    r"Starting vLLM server on",
    r"Application startup complete",
)


def readiness(plan: LaunchPlan) -> Readiness:
    """Say how to prove that the planned server answers."""
    return Readiness(
        health_path="/health",
        generate_path="/v1/completions",
        generate_body={
            "model": plan.served_model,
            "prompt": "The capital of France is",
            "max_tokens": 4,
            "temperature": 0,
        },
        info_path="/v1/models",
        log_hints=LOG_HINTS,
    )


def running_config(info: Mapping[str, Any]) -> dict[str, FlagValue]:
    """Read what the model list shows: the context length."""
    models = info.get("data")
    if isinstance(models, list):
        for model in models:
            length = model.get("max_model_len") if isinstance(model, Mapping) else None
            if isinstance(length, int):
                return {"max-model-len": length}
    return {}


def identity_matches(info: Mapping[str, Any], served_model: str) -> bool:
    """Say whether the model list shows our name."""
    models = info.get("data")
    return isinstance(models, list) and any(isinstance(m, Mapping) and m.get("id") == served_model for m in models)
