"""SGLang."""

from __future__ import annotations

from optimizer.engines.base import EngineModule
from optimizer.engines.package import EnginePackage


class SGLang(EnginePackage):
    """The engine; its answers are in the modules of this package."""

    name = "sglang"

    def flush_cache_request(self) -> tuple[str, str] | None:
        """Empties the radix cache and resets the acceptance counters."""
        return ("POST", "/flush_cache")


ENGINE: EngineModule = SGLang()
