"""What goes over the wire, as pydantic models: the shapes in OpenAPI, with examples that a test executes.

Requests that carry a specification or a host entry are documents validated by `optimizer.spec`, which tells every
mistake at once; here they are plain objects with an example.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from api.auth import KeyScope

ItemT = TypeVar("ItemT")
JsonObject = dict[str, Any]
Scalar = bool | int | float | str
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Problem(BaseModel):
    """An error (RFC 9457); `errors` lists every mistake of an input with its path."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[JsonObject]
    remedy: str | None = None


class Page(BaseModel, Generic[ItemT]):
    """One page of a listing; `next` is the `after` of the following page, null at the end."""

    items: list[ItemT]
    next: str | None


class StudyOut(BaseModel):
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
    verdict: JsonObject | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime | None
    version: int
    trials: dict[str, int] = Field(default_factory=dict)
    """How many trials are in each state."""


class StudyDetail(StudyOut):
    """A study with its specification and what was found on the host."""

    spec: JsonObject
    fingerprint: str
    home: JsonObject | None
    hardware: JsonObject | None


class StudyPatch(BaseModel):
    """What may be changed of a study that is not finished."""

    model_config = ConfigDict(extra="forbid")
    priority: int | None = Field(default=None, ge=-1000, le=1000)
    window: str | None = Field(default=None, max_length=100)
    """Name or id of a window; an empty text takes the window away."""


class TrialOut(BaseModel):
    """One server start and what was measured of it."""

    study_id: str
    number: int
    kind: str
    state: str
    phase: str
    arm: str
    params: JsonObject
    changed: JsonObject
    """Searched parameters that differ from the original (null: removed)."""
    effective: JsonObject
    canonical_key: str
    launch_command: str
    output_tok_s: float | None
    accept_len: float | None
    accept_rate: float | None
    step_ms: float | None
    metrics: JsonObject
    timings: JsonObject
    failure: JsonObject | None
    output_check: JsonObject | None
    warnings: list[str]
    attempt: int
    host: str
    engine_version: str | None
    driver_version: str | None
    env_names: list[str]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class MeasurementOut(BaseModel):
    """One benchmark of a trial: values by prompt, and every derived quantity."""

    trial_number: int
    workload_fingerprint: str
    path: str
    tok_s: dict[str, list[float | None]]
    metrics: JsonObject
    started_at: datetime
    bench_s: float
    ended_early: bool
    early_reason: str
    warnings: list[str]


class TrialDetail(TrialOut):
    """A trial with its measurements and the configuration that the running server showed."""

    running_config: JsonObject | None
    measurements: list[MeasurementOut]


class RequestOut(BaseModel):
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
    engine_timings: JsonObject
    usage_given: bool
    """The server said how many tokens there were; else they are counted by the stream."""
    tokens_exact: bool
    """The server said for every chunk how many tokens it carried."""
    cached_tokens: int | None


class SeriesOut(BaseModel):
    """One quantity over time beside a trial: a gauge of the engine, or a GPU's memory, load, heat or power."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "source": "gpu0",
                    "name": "power_w",
                    "started_at": "2026-11-29T22:14:05Z",
                    "times_s": [0.0, 2.0, 4.0],
                    "values": [612.0, 618.5, None],
                }
            ]
        }
    )
    source: str
    """Who counted: `engine`, `gpu0`, `gpu1`, ..."""
    name: str
    """What, with its unit: `decode_tok_s`, `power_w`, ..."""
    started_at: datetime
    times_s: list[float]
    """Seconds from `started_at`, one for each value."""
    values: list[float | None]


class ChangeOut(BaseModel):
    """One flag that differs from the original; null where it is absent, empty for a bare flag."""

    name: str
    before: str | None
    after: str | None
    gain: float | None
    """What it brought, as a fraction: the best against the best with this one undone; null before a proven win."""
    gain_sd: float | None
    sure: bool | None


class BestOut(BaseModel):
    """The best configuration known: proved or not is said by the verdict."""

    trial: TrialOut | None
    output_tok_s: float | None
    baseline_tok_s: float | None
    ratio: float | None
    launch_command: str | None
    changes: list[ChangeOut]
    proven: bool


class VerdictLook(BaseModel):
    """One look at the evidence."""

    candidate_key: str
    outcome: str
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    restarts: int
    pairs: JsonObject
    at: datetime


class VerdictOut(BaseModel):
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
    """What the search's models say of the flags, in sentences; no restart has proved it."""
    changes: JsonObject | None
    """What each changed flag of the best brought, flags without effect, values at an end of their range."""
    importance: dict[str, dict[str, float]]
    """Share of each flag in speed, accepted length and step time, by the models; each sums to 1."""
    best_by_level: JsonObject


class ImportanceOut(BaseModel):
    """How much of the differences in speed each searched parameter explains (0..1, they sum to 1)."""

    importance: dict[str, float]
    trials: int
    note: str


class ProblemItem(BaseModel):
    """One mistake of an input."""

    path: str
    message: str
    value: Any = None
    hint: str | None = None


class CheckOut(BaseModel):
    """Whether a specification can be used, with every mistake."""

    valid: bool
    errors: list[ProblemItem]


class HostOut(BaseModel):
    """A registered host. `facts` holds what the doctor and the studies learnt."""

    name: str
    entry: JsonObject
    host_key: str | None
    needs_attention: str
    facts: JsonObject
    home: JsonObject | None
    lease: JsonObject | None
    created_at: datetime
    version: int


class FindingOut(BaseModel):
    """One line of the doctor: `level` is ok, warning, error or skipped."""

    check: str
    level: str
    detail: str
    remedy: str
    data: JsonObject


class HostCheckOut(BaseModel):
    """The doctor's findings; `ok` when none is an error."""

    host: str
    ok: bool
    checked_at: datetime
    findings: list[FindingOut]


class RestoreOut(BaseModel):
    """What was done to put the original server back."""

    host: str
    restored: bool
    detail: str


class OpeningOut(BaseModel):
    """One opening, in UTC and on the zone's wall clock."""

    local_date: str
    opens_at: datetime
    closes_at: datetime
    opens_local: str
    closes_local: str


class WindowIn(BaseModel):
    """A window: it opens once a day by cron in a zone, and closes at a wall time or after minutes."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"name": "nights", "start_cron": "0 22 * * 1-5", "timezone": "Europe/Berlin", "until": "06:30"}
            ]
        },
    )
    name: Name
    start_cron: str = Field(max_length=200)
    timezone: str = Field(max_length=100)
    until: str | None = Field(default=None, max_length=10)
    duration_min: int | None = None
    enabled: bool = True


class WindowPatch(BaseModel):
    """Switch a window on or off."""

    model_config = ConfigDict(extra="forbid")
    enabled: bool


class WindowRunOut(BaseModel):
    """One opening that was: what ran, or why nothing did."""

    local_date: str
    opened_at: datetime
    closes_at: datetime
    status: str
    reason: str
    studies: list[str]
    has_report: bool


class WindowOut(BaseModel):
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
    created_at: datetime
    version: int


class KeyIn(BaseModel):
    """A key to make."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "ci", "scopes": ["operator"], "expires_days": 90}]}
    )
    name: Name
    scopes: list[KeyScope] = Field(min_length=1, max_length=3)
    expires_days: float | None = Field(default=None, gt=0, le=36_500)


class KeyOut(BaseModel):
    """A key without its secret."""

    id: str
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    usable: bool


class KeyMade(KeyOut):
    """A new key; `key` is shown this once."""

    key: str


class WhoOut(BaseModel):
    """The caller as the service sees it."""

    name: str
    scopes: list[str]
    via: Literal["key", "cookie", "anonymous"]


class HealthOut(BaseModel):
    """Whether the process answers, and whether it can work."""

    status: str
    checks: dict[str, str] = Field(default_factory=dict)


SPEC_EXAMPLE: JsonObject = {
    "name": "kimi-eagle3",
    "host": {
        "name": "gpu-box",
        "connection": "ssh",
        "ssh": {"alias": "gpu-box"},
        "gpus": [0, 1, 2, 3, 4, 5, 6, 7],
        "takeover": True,
    },
    "engine": "sglang",
    "engine_version": "0.5.23",
    "launch": {
        "command": ["python3", "-m", "sglang.launch_server"],
        "flags": {"model-path": "/shared/kimi-k2.5-int4", "tp-size": 8, "port": 8000},
        "env": {"NCCL_P2P_LEVEL": "SYS"},
    },
    "space": {"parameters": {"mem-fraction-static": {"float": [0.7, 0.92], "step": 0.01}}},
    "workload": {"preset": "five-prompts"},
    "budget": {"trials": 40, "hours": 8},
}
HOST_EXAMPLE: JsonObject = {
    "name": "gpu-box-2",
    "connection": "ssh",
    "ssh": {"alias": "gpu-box-2"},
    "http": {"reach": "tunnel"},
    "gpus": [0, 1, 2, 3],
    "takeover": True,
}
