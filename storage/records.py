"""The rows as frozen records. ORM rows and connections never leave `storage`; these do.

Decides the shape of what is kept; times are aware UTC, JSON columns are plain dicts and lists, numbers say their unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class StudyRecord:
    """One study. `spec` is the validated specification (secrets as references); `home` the server found before."""

    id: str
    name: str
    state: str
    host: str
    engine: str
    spec: dict[str, Any]
    created_at: datetime
    phase: str = ""
    """baseline | explore | confirm | finish, or empty before the first start."""
    state_reason: str = ""
    engine_version: str | None = None
    fingerprint: str = ""
    """Hash of space, model, workload and engine version: results with other fingerprints are never mixed."""
    home: dict[str, Any] | None = None
    hardware: dict[str, Any] | None = None
    verdict: dict[str, Any] | None = None
    best_trial: int | None = None
    priority: int = 0
    window_id: str | None = None
    run_dir: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime | None = None
    version: int = 1
    """Counts edits; the ETag of the API."""


@dataclass(frozen=True)
class ShareRecord:
    """One host's part in a study."""

    study_id: str
    host: str
    position: int = 0
    """0 is the study's own host, whose name its row carries."""
    home: dict[str, Any] | None = None
    """The server found there before anything was touched."""
    taken: bool = False
    """Home was stopped, or may have been, and is not proved back."""
    ending: str = ""
    """The state in which the work on this host ended; empty while it goes on or has not begun."""
    reason: str = ""


@dataclass(frozen=True)
class TrialRecord:
    """One server start with what was measured of it. `number` counts from 0 within the study."""

    study_id: str
    number: int
    kind: str
    """baseline | explore | confirm | self_test"""
    state: str
    arm: str
    """`baseline`, or the canonical key of the candidate."""
    params: dict[str, Any]
    """The searched parameters as asked."""
    created_at: datetime
    effective: dict[str, Any] = field(default_factory=dict)
    canonical_key: str = ""
    phase: str = ""
    """Current phase of a live trial: preflight, launch, load, ready, warmup, measure, stop."""
    launch_command: str = ""
    env_names: list[str] = field(default_factory=list)
    run_id: str | None = None
    host: str = ""
    engine_version: str | None = None
    driver_version: str | None = None
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds by phase: preflight_s, launch_s, load_s, ready_s, warmup_s, measure_s, stop_s."""
    output_tok_s: float | None = None
    accept_len: float | None = None
    accept_rate: float | None = None
    step_ms: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    failure: dict[str, Any] | None = None
    output_check: dict[str, Any] | None = None
    running_config: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
    optuna_number: int | None = None
    told: bool = False
    attempt: int = 1
    fence: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True)
class MeasurementRecord:
    """One benchmark of one trial; `tok_s` holds the verdict's blocks by prompt."""

    study_id: str
    trial_number: int
    workload_fingerprint: str
    path: str
    tok_s: dict[str, list[float]]
    metrics: dict[str, float]
    started_at: datetime
    bench_s: float
    ended_early: bool = False
    early_reason: str = ""
    warnings: list[str] = field(default_factory=list)
    id: int = 0


@dataclass(frozen=True)
class RequestRecord:
    """One raw request of a measurement. Token times in seconds from the start of the measurement."""

    prompt: str
    kind: str
    concurrency: int
    repeat: int
    start_s: float
    first_token_s: float | None
    end_s: float
    prompt_tokens: int
    output_tokens: int
    stream_tokens: int
    token_times_s: list[float]
    chunk_tokens: list[int]
    finish_reason: str | None
    error: str | None
    text: str
    engine_timings: dict[str, Any] = field(default_factory=dict)
    usage_given: bool = True
    """The server said how many tokens there were; else `output_tokens` is what the stream showed."""
    tokens_exact: bool = False
    cached_tokens: int | None = None


@dataclass(frozen=True)
class EventRecord:
    """One thing that happened; `id` grows over all studies and is the SSE id."""

    id: int
    study_id: str
    kind: str
    data: dict[str, Any]
    at: datetime


@dataclass(frozen=True)
class VerdictRecord:
    """One look at the evidence: the arms' restarts as pairs, and what followed."""

    study_id: str
    candidate_key: str
    outcome: str
    ratio: float
    ci_low: float | None
    """None where the interval is open: few restarts bound nothing."""
    ci_high: float | None
    restarts: int
    pairs: dict[str, Any]
    at: datetime
    id: int = 0

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends; None while one of them is open."""
        if self.ci_low is None or self.ci_high is None or not math.isfinite(self.ci_low + self.ci_high):
            return None
        return self.ci_low, self.ci_high


@dataclass(frozen=True)
class HostRecord:
    """A registered host; `entry` is the host file as validated (secrets as references)."""

    name: str
    entry: dict[str, Any]
    created_at: datetime
    host_key: str | None = None
    needs_attention: str = ""
    """Why a human must look; empty when nothing is wrong."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What was learnt: hardware, engine versions with their help texts, doctor findings."""
    home: dict[str, Any] | None = None
    """The last home server known, for `ratchet host restore`."""
    version: int = 1


@dataclass(frozen=True)
class LeaseRecord:
    """Who owns a host until when. `fence` only grows."""

    host: str
    owner: str
    fence: int
    until: datetime
    study_id: str | None = None


@dataclass(frozen=True)
class WindowRecord:
    """When studies may run: a cron start in a named zone, and an end."""

    id: str
    name: str
    start_cron: str
    timezone: str
    created_at: datetime
    until: str | None = None
    duration_min: int | None = None
    enabled: bool = True
    version: int = 1


@dataclass(frozen=True)
class WindowRunRecord:
    """One opening of a window: what ran, or why it was missed. At most one per window and local date."""

    window_id: str
    local_date: str
    opened_at: datetime
    closes_at: datetime
    status: str
    """open | ran | missed"""
    reason: str = ""
    studies: list[str] = field(default_factory=list)
    report: dict[str, Any] | None = None


@dataclass(frozen=True)
class KeyRecord:
    """An API key: only its hash is kept."""

    id: str
    name: str
    prefix: str
    hash: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True)
class SeriesRecord:
    """Numbers over time beside one trial: engine telemetry, or a GPU's memory, load, heat and power.

    `source` says who counted (`engine`, `gpu0`), `name` what (`decode_tok_s`, `power_w`). Times in seconds from
    `started_at`.
    """

    study_id: str
    trial_number: int
    source: str
    name: str
    started_at: datetime
    times_s: list[float]
    values: list[float]


@dataclass(frozen=True)
class IdempotencyRecord:
    """One POST that carried a key: what was asked, and the answer once there is one."""

    caller: str
    key: str
    request_hash: str
    created_at: datetime
    status: int | None = None
    response: dict[str, Any] | None = None


@dataclass(frozen=True)
class WebhookRecord:
    """One message to the outside, kept until delivered or given up. `target` names the receiver, never a secret."""

    target: str
    kind: str
    payload: dict[str, Any]
    created_at: datetime
    next_at: datetime
    study_id: str = ""
    state: str = "pending"
    """pending | sent | given_up"""
    attempts: int = 0
    sent_at: datetime | None = None
    last_error: str = ""
    id: int = 0
