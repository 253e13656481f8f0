"""A server of which nothing is known but that it speaks the OpenAI API; used by `ratchet bench` without `--engine`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.engines.base import SpeculationSample


class PlainServer:
    """The least that measuring needs: no counters, no cache to flush, no acceptance."""

    name = "openai"

    def metrics_path(self) -> str | None:
        """None: it is not known where counters are."""
        return None

    def speculation_from_counters(self, before: str, after: str) -> SpeculationSample:
        """Nothing is known."""
        return SpeculationSample()

    def speculation_from_responses(self, timings: Sequence[Mapping[str, Any]]) -> SpeculationSample:
        """Nothing is known."""
        return SpeculationSample()

    def flush_cache_request(self) -> tuple[str, str] | None:
        """None: prompts are salted instead."""
        return None
