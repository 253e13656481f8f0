"""vLLM. Its prefix cache can be emptied in development mode only: prompts are salted instead."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.engines.base import EngineModule, FlagValue
from optimizer.engines.package import EnginePackage
from optimizer.engines.vllm import readiness


class VLLM(EnginePackage):
    """The engine; its answers are in the modules of this package."""

    name = "vllm"

    def help_argv(self, command: Sequence[str]) -> list[str]:
        """The command that prints the flags; a bare `--help` lists the names of groups alone."""
        return [*command, "--help=all"]

    def running_from_log(self, log_text: str) -> dict[str, FlagValue]:
        """Read the running configuration out of the start of the log."""
        return readiness.running_from_log(log_text)


ENGINE: EngineModule = VLLM()
