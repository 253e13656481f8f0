"""Which engines there are: every package beside this file that brings a table of flags."""

from __future__ import annotations

import importlib
import pkgutil
from importlib import resources

from optimizer import engines
from optimizer.engines.base import EngineModule
from optimizer.errors import NotFound


def _is_engine(name: str) -> bool:
    return resources.files(engines).joinpath(name, "flags.json").is_file()


ENGINE_NAMES = tuple(m.name for m in pkgutil.iter_modules(engines.__path__) if m.ispkg and _is_engine(m.name))


def canonical_name(name: str) -> str | None:
    """Return the engine that a name stands for in any of its spellings, None when there is no such engine."""
    lower = name.lower()
    return next((n for n in ENGINE_NAMES if lower == n or lower in _module(n).aliases), None)


def find_engine(name: str) -> EngineModule:
    """Return the engine's module object (`optimizer.engines.<name>.ENGINE`).

    Raises:
        NotFound: there is no such engine.
    """
    key = canonical_name(name)
    if key is None:
        raise NotFound(f"no engine {name!r}", remedy=f"one of {', '.join(ENGINE_NAMES)}")
    return _module(key)


def _module(key: str) -> EngineModule:
    engine: EngineModule = importlib.import_module(f"optimizer.engines.{key}").ENGINE
    return engine
