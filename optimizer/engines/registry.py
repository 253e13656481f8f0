"""Which engines there are, by name."""

from __future__ import annotations

import importlib

from optimizer.engines.base import EngineModule
from optimizer.errors import NotFound

ENGINE_NAMES = ("sglang", "vllm", "llamacpp")
ALIASES = {"llama.cpp": "llamacpp", "llama-server": "llamacpp", "llama_cpp": "llamacpp"}


def find_engine(name: str) -> EngineModule:
    """Return the engine's module object (`optimizer.engines.<name>.ENGINE`).

    Raises:
        NotFound: there is no such engine.
    """
    key = ALIASES.get(name.lower(), name.lower())
    if key not in ENGINE_NAMES:
        raise NotFound(f"no engine {name!r}", remedy=f"one of {', '.join(ENGINE_NAMES)}")
    engine: EngineModule = importlib.import_module(f"optimizer.engines.{key}").ENGINE
    return engine
