"""What the service answers, as types for the client: each is the dictionary that the JSON is read into.

Written from `api/schemas.py` by `python -m tests.unit.api.answers`; a test compares. Times are texts in ISO 8601.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class StudyOut(TypedDict):
    """A study in a listing."""

    id: str
    name: str
    state: str
    state_reason: str
    phase: str
    host: str
    engine: str
    engine_version: str | None
    priority: int
    window_id: str | None
    best_trial: int | None
    verdict: dict[str, Any] | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    updated_at: str | None
    version: int
    trials: dict[str, int]


class StudyDetail(StudyOut):
    """A study with its specification and what was found on the host."""

    spec: dict[str, Any]
    fingerprint: str
    home: dict[str, Any] | None
    hardware: dict[str, Any] | None


class TrialOut(TypedDict):
    """One server start and what was measured of it."""

    study_id: str
    number: int
    kind: str
    state: str
    phase: str
    arm: str
    params: dict[str, Any]
    changed: dict[str, Any]
    effective: dict[str, Any]
    canonical_key: str
    launch_command: str
    output_tok_s: float | None
    accept_len: float | None
    accept_rate: float | None
    step_ms: float | None
    metrics: dict[str, Any]
    timings: dict[str, Any]
    failure: dict[str, Any] | None
    output_check: dict[str, Any] | None
    warnings: list[str]
    attempt: int
    host: str
    engine_version: str | None
    driver_version: str | None
    env_names: list[str]
    created_at: str
    started_at: str | None
    finished_at: str | None


class MeasurementOut(TypedDict):
    """One benchmark of a trial: values by prompt, and every derived quantity."""

    trial_number: int
    workload_fingerprint: str
    path: str
    tok_s: dict[str, list[float | None]]
    metrics: dict[str, Any]
    started_at: str
    bench_s: float
    ended_early: bool
    early_reason: str
    warnings: list[str]


class TrialDetail(TrialOut):
    """A trial with its measurements and the configuration that the running server showed."""

    running_config: dict[str, Any] | None
    measurements: list[MeasurementOut]


class RequestOut(TypedDict):
    """One raw request of a measurement; times in seconds from the start of the measurement."""

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
    engine_timings: dict[str, Any]
    usage_given: bool
    tokens_exact: bool
    cached_tokens: int | None


class SeriesOut(TypedDict):
    """One quantity over time beside a trial: a gauge of the engine, or a GPU's memory, load, heat or power."""

    source: str
    name: str
    started_at: str
    times_s: list[float]
    values: list[float | None]


class ChangeOut(TypedDict):
    """One flag that differs from the original; null where it is absent, empty for a bare flag."""

    name: str
    before: str | None
    after: str | None
    gain: float | None
    gain_sd: float | None
    sure: bool | None


class BestOut(TypedDict):
    """The best configuration known: proved or not is said by the verdict."""

    trial: TrialOut | None
    output_tok_s: float | None
    baseline_tok_s: float | None
    ratio: float | None
    launch_command: str | None
    changes: list[ChangeOut]
    proven: bool


class VerdictLook(TypedDict):
    """One look at the evidence."""

    candidate_key: str
    outcome: str
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    restarts: int
    pairs: dict[str, Any]
    at: str


class VerdictOut(TypedDict):
    """What the evidence shows, in one sentence and in numbers."""

    outcome: str | None
    sentence: str
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    restarts: int
    baseline_tok_s: float | None
    best_tok_s: float | None
    looks: list[VerdictLook]
    learnt: list[str]
    changes: dict[str, Any] | None
    importance: dict[str, dict[str, float]]
    best_by_level: dict[str, Any]


class ImportanceOut(TypedDict):
    """How much of the differences in speed each searched parameter explains (0..1, they sum to 1)."""

    importance: dict[str, float]
    trials: int
    note: str


class ProblemItem(TypedDict):
    """One mistake of an input."""

    path: str
    message: str
    value: Any
    hint: str | None


class CheckOut(TypedDict):
    """Whether a specification can be used, with every mistake."""

    valid: bool
    errors: list[ProblemItem]


class HostOut(TypedDict):
    """A registered host. `facts` holds what the doctor and the studies learnt."""

    name: str
    entry: dict[str, Any]
    host_key: str | None
    needs_attention: str
    facts: dict[str, Any]
    home: dict[str, Any] | None
    lease: dict[str, Any] | None
    created_at: str
    version: int


class FindingOut(TypedDict):
    """One line of the doctor: `level` is ok, warning, error or skipped."""

    check: str
    level: str
    detail: str
    remedy: str
    data: dict[str, Any]


class HostCheckOut(TypedDict):
    """The doctor's findings; `ok` when none is an error."""

    host: str
    ok: bool
    checked_at: str
    findings: list[FindingOut]


class RestoreOut(TypedDict):
    """What was done to put the original server back."""

    host: str
    restored: bool
    detail: str


class OpeningOut(TypedDict):
    """One opening, in UTC and on the zone's wall clock."""

    local_date: str
    opens_at: str
    closes_at: str
    opens_local: str
    closes_local: str


class WindowRunOut(TypedDict):
    """One opening that was: what ran, or why nothing did."""

    local_date: str
    opened_at: str
    closes_at: str
    status: str
    reason: str
    studies: list[str]
    has_report: bool


class WindowOut(TypedDict):
    """A window with its next five openings and the last runs."""

    id: str
    name: str
    start_cron: str
    timezone: str
    until: str | None
    duration_min: int | None
    enabled: bool
    open_now: bool
    next_openings: list[OpeningOut]
    studies: list[str]
    runs: list[WindowRunOut]
    created_at: str
    version: int


class KeyOut(TypedDict):
    """A key without its secret."""

    id: str
    name: str
    prefix: str
    scopes: list[str]
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    usable: bool


class KeyMade(KeyOut):
    """A new key; `key` is shown this once."""

    key: str


class WhoOut(TypedDict):
    """The caller as the service sees it."""

    name: str
    scopes: list[str]
    via: Literal["key", "cookie", "anonymous"]


class HealthOut(TypedDict):
    """Whether the process answers, and whether it can work."""

    status: str
    checks: dict[str, str]
