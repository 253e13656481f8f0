"""vLLM.

Decides nothing by itself: joins the modules of this package to the protocol of an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.engines.base import (
    Config,
    Effective,
    EngineModule,
    FlagValue,
    Hardware,
    LaunchPlan,
    Readiness,
)
from optimizer.engines.package import EnginePackage
from optimizer.engines.vllm import flags, launch, presets, readiness, rules
from optimizer.search.space import Space


class VLLM(EnginePackage):
    """The engine; every method is pure."""

    name = "vllm"

    def presets(self, version: str | None) -> dict[str, Space]:
        """Named parts of the search space."""
        return presets.presets(version)

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
        return rules.effective(config, version, hardware, model, draft_model)

    def check_help(self, help_text: str) -> frozenset[str]:
        """Names that the installed version's `--help` lists."""
        return flags.help_names(help_text)

    def help_argv(self, command: Sequence[str]) -> list[str]:
        """The command that prints the flags."""
        return flags.help_argv(command)

    def version_argv(self, command: Sequence[str]) -> list[str]:
        """The command that prints the version."""
        return flags.version_argv(command)

    def parse_version(self, text: str) -> str | None:
        """The version out of what `version_argv` printed."""
        return flags.parse_version(text)

    def flags_to_argv(self, flags: Mapping[str, FlagValue]) -> list[str]:
        """Render flags. Raises ValueError for a name outside the grammar."""
        return launch.flags_to_argv(flags)

    def launch_plan(
        self, command: Sequence[str], config: Config, cwd: str | None, effective: Effective, served_model: str
    ) -> LaunchPlan:
        """Build the plan that starts `config`."""
        return launch.launch_plan(command, config, cwd, effective, served_model)

    def readiness(self, plan: LaunchPlan) -> Readiness:
        """Say how to prove that the planned server answers."""
        return readiness.readiness(plan)

    def running_config(self, info: Mapping[str, Any]) -> dict[str, FlagValue]:
        """Read the running configuration out of the info endpoint."""
        return readiness.running_config(info)

    def running_from_log(self, log_text: str) -> dict[str, FlagValue]:
        """Read the running configuration out of the start of the log."""
        return readiness.running_from_log(log_text)

    def identity_matches(self, info: Mapping[str, Any], served_model: str) -> bool:
        """Say whether the info endpoint or the model list shows our alias."""
        return readiness.identity_matches(info, served_model)

    def metrics_path(self) -> str | None:
        """Path of the Prometheus endpoint."""
        return "/metrics"

    def wants_speculation(self, config: Config) -> bool:
        """Say whether this configuration asks for speculative decoding."""
        return rules.speculates(config)

    def lossy_flags(self, config: Config) -> tuple[str, ...]:
        """Settings that change outputs by design."""
        return rules.lossy(config)

    def flush_cache_request(self) -> tuple[str, str] | None:
        """The request exists only in development mode: prompts must be salted."""
        return None


ENGINE: EngineModule = VLLM()
