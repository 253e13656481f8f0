"""SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import Config, EngineModule, Hardware
from optimizer.engines.package import EnginePackage


class SGLang(EnginePackage):
    """The engine; its answers are in the modules of this package."""

    name = "sglang"

    def fails_at_start(self, effective: Config, hardware: Hardware, model: Mapping[str, Any] | None) -> list[str]:
        """Kernels that the model or the GPU cannot use."""
        reasons: list[str] = self._part("kernels").refused(effective, hardware, model)
        return reasons

    def flush_cache_request(self) -> tuple[str, str] | None:
        """Empties the radix cache and resets the acceptance counters."""
        return ("POST", "/flush_cache")


ENGINE: EngineModule = SGLang()
