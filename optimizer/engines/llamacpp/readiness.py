"""How a llama-server proves that it answers, and what its info endpoint tells.

Decides paths and how `/props` is read; polling and comparing are done elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import FlagValue, LaunchPlan, Readiness

LOG_HINTS = (
    r"loading model",
    r"initializing,? n_slots|n_ctx_slot",
    r"model loaded",
    r"listening on http",
)
INFO_PATH = "/props"


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
            "cache_prompt": False,
        },
        info_path=INFO_PATH,
        log_hints=LOG_HINTS,
    )


def running_config(info: Mapping[str, Any]) -> dict[str, FlagValue]:
    """Read what `/props` shows of the running configuration: the number of slots."""
    slots = info.get("total_slots")
    return {"parallel": slots} if isinstance(slots, int) and not isinstance(slots, bool) else {}


def identity_matches(info: Mapping[str, Any], served_model: str) -> bool:
    """Say whether `/props` or the model list shows our alias."""
    aliases = [a.strip() for a in str(info.get("model_alias") or "").split(",")]
    models = info.get("data")
    if isinstance(models, list):
        for model in models:
            if isinstance(model, Mapping):
                aliases += [str(model.get("id", "")), *(str(a) for a in model.get("aliases") or ())]
    return served_model in aliases
