"""How an SGLang server proves that it answers, and what its info endpoint tells.

Decides paths and how the server's arguments are read; polling and comparing are done elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import FlagValue, LaunchPlan, Readiness
from optimizer.engines.sglang.flags import table

LOG_HINTS = (
    r"server_args=",
    r"Init (parallel|torch distributed) begin",
    r"Load weight begin",
    r"Load weight end",
    r"Memory pool end|KV Cache is allocated",
    r"Capture .*graph begin",
    r"Capture .*graph end",
    r"Application startup complete",
    r"The server is fired up and ready to roll",
)
INFO_PATH = "/get_server_info"
"""The old name is answered by every version; the new one, /server_info, exists since 0.5.6 only."""


def readiness(plan: LaunchPlan) -> Readiness:
    """Say how to prove that the planned server answers: health before 0.5.1 is no proof, a generation always is."""
    return Readiness(
        health_path="/health",
        generate_path="/v1/completions",
        generate_body={
            "model": plan.served_model,
            "prompt": "The capital of France is",
            "max_tokens": 4,
            "temperature": 0,
        },
        info_path=INFO_PATH,
        log_hints=LOG_HINTS,
    )


def running_config(info: Mapping[str, Any]) -> dict[str, FlagValue]:
    """Read the resolved arguments under our flag names; what has no plain value is left out."""
    found: dict[str, FlagValue] = {}
    for flag in table().at(None).flags:
        value = info.get(flag.record_name)
        if isinstance(value, bool):
            if value and not flag.takes_value:
                found[flag.name] = True
        elif isinstance(value, int | float | str):
            found[flag.name] = value
        elif isinstance(value, list) and value and flag.kind == "list":
            found[flag.name] = " ".join(str(v) for v in value)
    return found


def identity_matches(info: Mapping[str, Any], served_model: str) -> bool:
    """Say whether the server's arguments or its model list show our name."""
    if info.get("served_model_name") == served_model:
        return True
    models = info.get("data")
    return isinstance(models, list) and any(isinstance(m, Mapping) and m.get("id") == served_model for m in models)
