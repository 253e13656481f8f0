"""What vLLM makes of a request, in the order in which it builds its configuration.

Decides the effective configuration and the refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import Config, Effective, Hardware
from optimizer.engines.resolution import Resolution, start
from optimizer.engines.vllm.flags import table, take_apart

JSON_FLAGS = ("speculative-config", "compilation-config")


def opened(config: Config, version: str | None) -> Resolution:
    """Read a request with its JSON flags taken apart."""
    flags = dict(config)
    problems: list[str] = []
    for name in JSON_FLAGS:
        text = flags.get(name)
        if isinstance(text, str):
            try:
                parts = take_apart(name, text)
            except ValueError as error:
                problems.append(f"{name}: {error}")
                continue
            del flags[name]
            for key, value in parts.items():
                if key in flags and flags[key] != value:
                    problems.append(f"{key} is given twice: as a flag and inside {name}")
                flags[key] = value
    state = start(flags, table(), version)
    for problem in problems:
        state.reject(problem)
    return state


def effective(
    config: Config,
    version: str | None,
    hardware: Hardware,
    model: Mapping[str, Any] | None = None,
    draft_model: Mapping[str, Any] | None = None,
) -> Effective:
    """Say which server runs; see `EngineModule.effective`."""
    state = opened(config, version)
    return state.finish()


def speculates(config: Config) -> bool:
    """Say whether the request asks for speculation."""
    state = opened(config, None)
    return any(state.text(n) is not None for n in ("spec-method", "spec-model", "speculative-config"))


def lossy(config: Config) -> tuple[str, ...]:
    """Return the settings that change outputs by design."""
    state = opened(config, None)
    found = [f"spec-rejection-sample-method={m}" for m in [state.text("spec-rejection-sample-method")] if m in LOSSY]
    kv = state.text("kv-cache-dtype")
    if kv not in {None, "auto", "float16", "bfloat16"}:
        found.append(f"kv-cache-dtype={kv}")
    if "quantization" in state.given:
        found.append(f"quantization={state.text('quantization')}")
    return tuple(found)


LOSSY = frozenset({"synthetic", "fly"})
