"""The protocol every engine package implements, and the nouns it speaks in.

Decides the vocabulary (request, effective configuration, launch plan, telemetry record, explanation) and
leaves every fact about flags and texts to the engine packages. Nothing here or below knows a host.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from optimizer.search.space import Space

FlagValue = bool | int | float | str
"""`True` means the bare flag is present; an absent flag is a missing key, never `False` or `None`."""

Config = Mapping[str, FlagValue]
"""Flags by long name without dashes (`tp-size`), environment variables as `env.NAME`."""

ENV_PREFIX = "env."


def split_env(config: Config) -> tuple[dict[str, FlagValue], dict[str, str]]:
    """Split a configuration into its flags and its environment variables (values as text)."""
    flags = {k: v for k, v in config.items() if not k.startswith(ENV_PREFIX)}
    env = {k.removeprefix(ENV_PREFIX): str(v) for k, v in config.items() if k.startswith(ENV_PREFIX)}
    return flags, env


@dataclass(frozen=True)
class Hardware:
    """What the host has, as far as rules depend on it. Empty values mean "not known"."""

    gpu_name: str = ""
    gpu_count: int = 0
    gpu_memory_gib: float = 0.0
    cpu_count: int = 0
    driver_version: str = ""


class Verdict(StrEnum):
    """What an engine does with a request."""

    ACCEPTED = "accepted"
    ADJUSTED = "adjusted"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Adjustment:
    """One value that the engine replaces by another before it runs (`None` stands for absent)."""

    flag: str
    asked: FlagValue | None
    becomes: FlagValue | None
    why: str


@dataclass(frozen=True)
class Effective:
    """The server that really runs when `config` is asked for.

    `config` is canonical: forced and derived values filled in, no-effect flags dropped, so that two
    requests for the same server are equal here. `config` holds only what distinguishes servers.
    """

    verdict: Verdict
    config: dict[str, FlagValue]
    adjustments: tuple[Adjustment, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why the engine rejects it, in our words; empty unless rejected."""
    unknown_flags: tuple[str, ...] = ()
    no_effect: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Hash of the canonical configuration: equal keys are one and the same server."""
        return canonical_key(self.config)

    def refused(self, reasons: Sequence[str]) -> Effective:
        """Return this outcome as a rejection for these further reasons; without any it stays as it is."""
        if not reasons:
            return self
        return replace(self, verdict=Verdict.REJECTED, reasons=(*self.reasons, *reasons))


def canonical_key(config: Config) -> str:
    """Return a 16-digit hash of a canonical configuration, independent of the order of its keys."""
    text = json.dumps(dict(config), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class LaunchPlan:
    """Everything needed to start one server, before anything is quoted."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    port: int
    bind_host: str
    served_model: str
    """Name or alias that the server must report, to prove its identity."""
    expected: dict[str, FlagValue]
    """The effective configuration that the running server must show."""
    secret_env: frozenset[str] = frozenset()
    """Names in `env` whose values are masked wherever the command is shown."""


@dataclass(frozen=True)
class Readiness:
    """How to ask this engine whether it is ready (all paths on the server's own port)."""

    health_path: str
    generate_path: str
    generate_body: dict[str, Any]
    """A real generation of a few tokens, greedy."""
    info_path: str | None
    """Where the running configuration can be read, if anywhere."""
    log_hints: tuple[str, ...]
    """Regular expressions of log stages in order; hints for phases, never proof."""


class Blame(StrEnum):
    """Whose fault a failure is; only `CONFIG` teaches the search."""

    CONFIG = "config"
    HOST = "host"
    INFRASTRUCTURE = "infrastructure"
    ENGINE = "engine"


@dataclass(frozen=True)
class Explanation:
    """One failure, explained in one line with its remedy."""

    label: str
    engine: str
    summary: str
    remedy: str
    evidence: tuple[str, ...] = ()
    blame: Blame = Blame.ENGINE
    retry: bool = False
    stop_study: bool = False
    confidence: float = 0.5


Phase = Literal["startup", "runtime", "benchmark", "shutdown"]


@dataclass(frozen=True)
class FailureContext:
    """What is known beside the log when a failure is explained."""

    exit_code: int | None = None
    signal: int | None = None
    phase: Phase | None = None
    config: Config = field(default_factory=dict)
    kernel_log: str = ""


@dataclass(frozen=True)
class SpeculationSample:
    """Acceptance over one window, from counters or per-request timings.

    `accept_len` counts the bonus token (1.0 = nothing accepted); `accept_rate` is accepted / drafted tokens,
    0..1. `None` where the engine does not tell.
    """

    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    verify_steps: int | None = None
    accept_len: float | None = None
    accept_rate: float | None = None
    definition: str = ""


class EngineModule(Protocol):
    """One engine: `optimizer.engines.<name>.ENGINE` is an instance. All methods are pure."""

    name: str

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names that people give it, in lower case."""

    @property
    def default_port(self) -> int:
        """Port that it listens on when none is given."""

    def presets(self, version: str | None) -> dict[str, Space]:
        """Named parts of the search space that exist in `version` (None: newest known)."""

    def effective(
        self,
        config: Config,
        version: str | None,
        hardware: Hardware,
        *,
        model: Mapping[str, Any] | None = None,
        draft_model: Mapping[str, Any] | None = None,
    ) -> Effective:
        """Say which server really runs for `config` (the full launch flags, not only the searched ones).

        `model` and `draft_model` are the `config.json` of the models, where they could be read: several defaults
        and refusals depend on them. Without them a dense decoder of no special kind is assumed.
        """

    def fails_at_start(self, effective: Config, hardware: Hardware, model: Mapping[str, Any] | None) -> list[str]:
        """Return why a server whose arguments are accepted dies while it starts (`model`: its `config.json`)."""

    def check_help(self, help_text: str) -> frozenset[str]:
        """Return the long flag names (without dashes) that the installed version's `--help` lists."""

    def help_argv(self, command: Sequence[str]) -> list[str]:
        """Return the command that prints the flags of the installed version."""

    def version_argv(self, command: Sequence[str]) -> list[str]:
        """Return the command that prints the installed version."""

    def parse_version(self, text: str) -> str | None:
        """Read a version out of what `version_argv` printed."""

    def flags_to_argv(self, flags: Mapping[str, FlagValue]) -> list[str]:
        """Render flags as the engine spells them; order is stable.

        Raises:
            ValueError: a name is outside the engine's grammar (letters, digits, dashes).
        """

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
        """Build the plan that starts `config`; adds only what identity and measuring need (port, alias, metrics).

        `served_model` may hold several names as the engine writes them; the plan is known by the first. `installed` is
        what `check_help` found (empty: not asked): a flag of ours that the version has not is left out.
        """

    def readiness(self, plan: LaunchPlan) -> Readiness:
        """Say how to prove that the planned server answers."""

    def running_config(self, info: Mapping[str, Any]) -> dict[str, FlagValue]:
        """Read the parts of the running configuration that the info endpoint shows, under our flag names."""

    def running_from_log(self, log_text: str) -> dict[str, FlagValue]:
        """Read what the log's start says of the running configuration; the info endpoint has the last word."""

    def identity_matches(self, info: Mapping[str, Any], served_model: str) -> bool:
        """Say whether the info endpoint (or model list) shows the alias of our plan."""

    def telemetry(self, log_text: str) -> list[dict[str, Any]]:
        """Read throughput records out of a log (see docs/reference/telemetry.md for the keys)."""

    def metrics_path(self) -> str | None:
        """Path of the Prometheus endpoint, if the launch plan switched it on."""

    def speculation_from_counters(self, before: str, after: str) -> SpeculationSample:
        """Acceptance over a window from two Prometheus texts (differences, never levels)."""

    def speculation_from_responses(self, timings: Sequence[Mapping[str, Any]]) -> SpeculationSample:
        """Acceptance over the engine's own per-request fields (`timings`, `meta_info`)."""

    def wants_speculation(self, config: Config) -> bool:
        """Say whether this configuration asks for speculative decoding."""

    def lossy_flags(self, config: Config) -> tuple[str, ...]:
        """Settings known to change outputs by design (quantised KV cache, accept thresholds below 1)."""

    def explain(self, log_text: str, context: FailureContext) -> Explanation:
        """Explain a failure by its first cause; label `none` for a healthy log."""

    def flush_cache_request(self) -> tuple[str, str] | None:
        """Method and path that empty the prefix cache, or None when prompts must be salted instead."""
