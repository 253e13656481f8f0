"""vLLM. Its prefix cache can be emptied in development mode only: prompts are salted instead."""

from __future__ import annotations

from optimizer.engines.base import EngineModule
from optimizer.engines.package import EnginePackage


class VLLM(EnginePackage):
    """The engine; its answers are in the modules of this package."""

    name = "vllm"


ENGINE: EngineModule = VLLM()
