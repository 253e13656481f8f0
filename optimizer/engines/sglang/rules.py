"""What SGLang makes of a request, in the order in which it resolves its arguments.

Decides the effective configuration and the refusals by joining the rule modules of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import Config, Effective, Hardware
from optimizer.engines.resolution import Resolution, start
from optimizer.engines.sglang.flags import table
from optimizer.engines.sglang.spec_rules import speculation


def effective(
    config: Config,
    version: str | None,
    hardware: Hardware,
    model: Mapping[str, Any] | None = None,
    draft_model: Mapping[str, Any] | None = None,
) -> Effective:
    """Say which server runs; see `EngineModule.effective`."""
    state = start(config, table(), version)
    _unread(state)
    speculation(state)
    return state.finish()


def _unread(state: Resolution) -> None:
    for name in list(state.values):
        reason = state.flags[name].no_effect if name in state.flags else ""
        if reason:
            state.ignore(name, reason)


def speculates(config: Config) -> bool:
    """Say whether the request asks for speculation."""
    return start(config, table(), None).text("speculative-algorithm") is not None


def lossy(config: Config) -> tuple[str, ...]:
    """Return the settings that change outputs by design."""
    state = start(config, table(), None)
    found = []
    for name in ("speculative-accept-threshold-single", "speculative-accept-threshold-acc"):
        value = state.get(name)
        if isinstance(value, int | float) and value < 1.0:
            found.append(f"{name}={value}")
    kv = state.text("kv-cache-dtype")
    if kv not in {None, "auto", "bf16", "bfloat16"}:
        found.append(f"kv-cache-dtype={kv}")
    if "quantization" in state.given:
        found.append(f"quantization={state.text('quantization')}")
    return tuple(found)
