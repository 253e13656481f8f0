"""What every engine package does alike: hand each question to its own module.

Decides only where answers are (`presets`, `rules`, `flags`, `launch`, `readiness`, `telemetry`, `speculation`,
`failures` beside the engine's `__init__`), imported on use: a command that reads a log loads no rules.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.engines.base import (
    Config,
    Effective,
    Explanation,
    FailureContext,
    FlagValue,
    Hardware,
    LaunchPlan,
    Readiness,
    SpeculationSample,
)
from optimizer.search.space import Space


class EnginePackage:
    """Base of the engine objects; stateless. What a method means is said at `EngineModule`."""

    name = ""
    aliases: tuple[str, ...] = ()

    @property
    def default_port(self) -> int:
        """Port that it listens on when none is given."""
        port: int = self._part("launch").DEFAULT_PORT
        return port

    def _part(self, module: str) -> Any:
        return importlib.import_module(f"optimizer.engines.{self.name}.{module}")

    def presets(self, version: str | None) -> dict[str, Space]:
        """Named parts of the search space."""
        found: dict[str, Space] = self._part("presets").presets(version)
        return found

    def effective(
        self,
        config: Config,
        version: str | None,
        hardware: Hardware,
        *,
        model: Mapping[str, Any] | None = None,
        draft_model: Mapping[str, Any] | None = None,
    ) -> Effective:
        """Say which server really runs for `config`."""
        result: Effective = self._part("rules").effective(config, version, hardware, model, draft_model)
        return result

    def fails_at_start(self, effective: Config, hardware: Hardware, model: Mapping[str, Any] | None) -> list[str]:
        """Nothing: what is known of most engines is what their arguments refuse."""
        del effective, hardware, model
        return []

    def check_help(self, help_text: str) -> frozenset[str]:
        """Names that the installed version's `--help` lists."""
        names: frozenset[str] = self._part("flags").help_names(help_text)
        return names

    def help_argv(self, command: Sequence[str]) -> list[str]:
        """The command that prints the flags."""
        return [*command, "--help"]

    def version_argv(self, command: Sequence[str]) -> list[str]:
        """The command that prints the version."""
        words: list[str] = self._part("flags").version_argv(command)
        return words

    def parse_version(self, text: str) -> str | None:
        """The version out of what `version_argv` printed."""
        version: str | None = self._part("flags").parse_version(text)
        return version

    def flags_to_argv(self, flags: Mapping[str, FlagValue]) -> list[str]:
        """Render flags. Raises ValueError for a name outside the grammar."""
        words: list[str] = self._part("launch").flags_to_argv(flags)
        return words

    def launch_plan(
        self,
        command: Sequence[str],
        config: Config,
        cwd: str | None,
        effective: Effective,
        served_model: str,
        *,
        installed: frozenset[str] = frozenset(),
    ) -> LaunchPlan:
        """Build the plan that starts `config`."""
        plan: LaunchPlan = self._part("launch").launch_plan(command, config, cwd, effective, served_model, installed)
        return plan

    def readiness(self, plan: LaunchPlan) -> Readiness:
        """Say how to prove that the planned server answers."""
        ready: Readiness = self._part("readiness").readiness(plan)
        return ready

    def running_config(self, info: Mapping[str, Any]) -> dict[str, FlagValue]:
        """Read the running configuration out of the info endpoint."""
        config: dict[str, FlagValue] = self._part("readiness").running_config(info)
        return config

    def running_from_log(self, log_text: str) -> dict[str, FlagValue]:
        """Nothing: most engines say all there is at their info endpoint."""
        del log_text
        return {}

    def identity_matches(self, info: Mapping[str, Any], served_model: str) -> bool:
        """Say whether the info endpoint or the model list shows our alias."""
        matches: bool = self._part("readiness").identity_matches(info, served_model)
        return matches

    def telemetry(self, log_text: str) -> list[dict[str, Any]]:
        """Read throughput records out of a log."""
        records: list[dict[str, Any]] = self._part("telemetry").read_log(log_text)
        return records

    def metrics_path(self) -> str | None:
        """Path of the Prometheus endpoint."""
        return "/metrics"

    def speculation_from_counters(self, before: str, after: str) -> SpeculationSample:
        """Acceptance over a window from two Prometheus texts."""
        sample: SpeculationSample = self._part("speculation").from_counters(before, after)
        return sample

    def speculation_from_responses(self, timings: Sequence[Mapping[str, Any]]) -> SpeculationSample:
        """Acceptance over the engine's own per-request fields."""
        sample: SpeculationSample = self._part("speculation").from_responses(timings)
        return sample

    def wants_speculation(self, config: Config) -> bool:
        """Say whether this configuration asks for speculative decoding."""
        wants: bool = self._part("rules").speculates(config)
        return wants

    def lossy_flags(self, config: Config) -> tuple[str, ...]:
        """Settings that change outputs by design."""
        names: tuple[str, ...] = self._part("rules").lossy(config)
        return names

    def explain(self, log_text: str, context: FailureContext) -> Explanation:
        """Explain a failure by its first cause."""
        explanation: Explanation = self._part("failures").explain(log_text, context)
        return explanation

    def flush_cache_request(self) -> tuple[str, str] | None:
        """No such request: prompts must be salted."""
        return None
