"""llama.cpp's `llama-server`."""

from __future__ import annotations

from optimizer.engines.base import EngineModule
from optimizer.engines.package import EnginePackage


class LlamaCpp(EnginePackage):
    """The engine; its answers are in the modules of this package."""

    name = "llamacpp"
    aliases = ("llama.cpp", "llama-server", "llama_cpp")


ENGINE: EngineModule = LlamaCpp()
