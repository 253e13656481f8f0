"""What every engine package does alike: hand logs, counters and failures to its own modules.

Decides only where they are (`telemetry`, `speculation`, `failures` beside the engine's `__init__`), imported on use.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.engines.base import Explanation, FailureContext, FlagValue, SpeculationSample


class EnginePackage:
    """Base of the engine objects; stateless."""

    name = ""

    def _part(self, module: str) -> Any:
        return importlib.import_module(f"optimizer.engines.{self.name}.{module}")

    def running_from_log(self, log_text: str) -> dict[str, FlagValue]:
        """Nothing: the info endpoint of most engines says all there is."""
        del log_text
        return {}

    def telemetry(self, log_text: str) -> list[dict[str, Any]]:
        """Read throughput records out of a log."""
        records: list[dict[str, Any]] = self._part("telemetry").read_log(log_text)
        return records

    def speculation_from_counters(self, before: str, after: str) -> SpeculationSample:
        """Acceptance over a window from two Prometheus texts."""
        sample: SpeculationSample = self._part("speculation").from_counters(before, after)
        return sample

    def speculation_from_responses(self, timings: Sequence[Mapping[str, Any]]) -> SpeculationSample:
        """Acceptance over the engine's own per-request fields."""
        sample: SpeculationSample = self._part("speculation").from_responses(timings)
        return sample

    def explain(self, log_text: str, context: FailureContext) -> Explanation:
        """Explain a failure by its first cause."""
        explanation: Explanation = self._part("failures").explain(log_text, context)
        return explanation
