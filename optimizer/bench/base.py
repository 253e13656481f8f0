"""The nouns of measuring: prompts, requests as they went, a measurement, a verdict.

Decides what is recorded. How load is made is `load.py`, what is derived `measure.py`, what is a win `verdict.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from optimizer.engines.base import SpeculationSample


@dataclass(frozen=True)
class Prompt:
    """One request of a workload. `name` is the block for paired comparisons."""

    name: str
    kind: str
    messages: tuple[dict[str, str], ...]
    max_tokens: int
    json_schema: dict[str, Any] | None = None


@dataclass(frozen=True)
class Workload:
    """What is asked of a server, completely; equal fingerprints may be compared.

    `cache` is `cold` (flushed, or prompts salted per repeat) or `warm`. `arrival_rate_s` is requests per second
    (None: closed loop at `concurrency`). `output_tok_s` and the verdict's blocks come from the first level of
    `concurrency`. Time limits do not change what is asked and are not part of the fingerprint.
    """

    name: str
    prompts: tuple[Prompt, ...]
    concurrency: tuple[int, ...] = (1,)
    repeats: int = 1
    warmup_requests: int = 1
    temperature: float = 0.0
    cache: str = "cold"
    arrival_rate_s: float | None = None
    fingerprint: str = ""
    api: str = "chat"
    """chat | completions (OpenAI), generate (SGLang), completion (llama.cpp)."""
    ignore_eos: bool = False
    requests_per_level: int | None = None
    """Requests at one level; None: every prompt `repeats` times, and at least `REQUESTS_PER_STREAM` for each stream."""
    waves: int = 1
    """A level is cut into that many waves; each drains to zero streams before the next begins."""
    request_timeout_s: float = 300.0
    stall_timeout_s: float = 60.0
    """The longest silence between two pieces of one stream (the wait for the first token included)."""
    max_error_share: float = 0.2
    """A larger share of failed requests fails the measurement."""
    slo_ttft_ms: float | None = None
    slo_itl_ms: float | None = None
    """Limits that a request must keep to count as goodput (mean ITL of the request)."""
    seed: int = 0


@dataclass(frozen=True)
class RequestSample:
    """One request as the client saw it. Times in seconds from the start of the measurement.

    `token_times_s` has one entry per received chunk, `chunk_tokens` how many tokens it carried.
    `output_tokens` is the server's usage field, `stream_tokens` what the stream showed.
    """

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
    token_times_s: tuple[float, ...]
    chunk_tokens: tuple[int, ...]
    finish_reason: str | None
    error: str | None
    text: str
    engine_timings: dict[str, Any] = field(default_factory=dict)
    usage_given: bool = True
    """The server said how many tokens there were; else `output_tokens` is what the stream showed."""
    tokens_exact: bool = False
    """The server said for every chunk how many tokens it carried; else each chunk counts as one."""
    cached_tokens: int | None = None
    """Prompt tokens that came from the prefix cache, where the server tells."""

    @property
    def ok(self) -> bool:
        """Say whether the request ended as it should."""
        return self.error is None

    @property
    def end_to_end_tok_s(self) -> float:
        """Output tokens over the whole time of the request, prompt included; 0 when it failed."""
        span = self.end_s - self.start_s
        return self.output_tokens / span if self.ok and span > 0 else 0.0

    @property
    def decode_tok_s(self) -> float:
        """(tokens - 1) / (last - first token time); 0 when it failed or had fewer than two tokens."""
        if not self.ok or self.first_token_s is None or len(self.token_times_s) < 2 or self.output_tokens < 2:
            return 0.0
        span = self.token_times_s[-1] - self.first_token_s
        return (self.output_tokens - 1) / span if span > 0 else 0.0


@dataclass(frozen=True)
class Series:
    """One quantity over the measured windows. Times in seconds from the start of the measurement."""

    source: str
    """Who counted: `engine`, `gpu0`, ..."""
    name: str
    """What, with its unit: `running_req`, `gen_tok_s`, `power_w`."""
    times_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Measurement:
    """One benchmark of one server start.

    `tok_s` holds, by prompt name, the value of each repeat of the objective's quantity (end-to-end tok/s of a
    stream at the first concurrency level): these are the blocks of the verdict. `metrics` has every derived
    quantity under its unit-bearing name (`output_tok_s`, `ttft_p99_ms`, `itl_p50_ms`, `error_rate`, ...), and per
    level as `output_tok_s@8`.
    """

    workload_fingerprint: str
    path: str
    tok_s: dict[str, list[float]]
    metrics: dict[str, float]
    samples: tuple[RequestSample, ...]
    accept_len: float | None = None
    accept_rate: float | None = None
    step_ms: float | None = None
    ended_early: bool = False
    early_reason: str = ""
    warnings: tuple[str, ...] = ()
    started_at: str = ""
    bench_s: float = 0.0
    speculation: SpeculationSample = field(default_factory=SpeculationSample)
    """What the engine told of drafting over the first level."""
    series: tuple[Series, ...] = ()


class Outcome(StrEnum):
    """What the evidence says about a candidate against the baseline."""

    WIN = "win"
    WORSE = "worse"
    NO_SIGNIFICANT_WIN = "no_significant_win"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class VerdictResult:
    """Ratio of candidate to baseline with its interval; `next` says which arm to restart next, or `stop`."""

    outcome: Outcome
    ratio: float
    ci_low: float
    ci_high: float
    restarts: int
    next: str
    confidence: float = 0.95


@dataclass(frozen=True)
class OutputCheck:
    """Whether a candidate's outputs are the baseline's, as far as the baseline agrees with itself."""

    ok: bool
    agreement: float
    """Mean share of common prefix with the baseline, 0..1."""
    self_agreement: float
    tolerance: float
    problems: tuple[str, ...] = ()
    lossy: tuple[str, ...] = ()


class MeasuredEngine(Protocol):
    """What measuring needs to know of an engine: the part of `engines.base.EngineModule` that is used here."""

    @property
    def name(self) -> str:
        """Name of the engine; decides the dialect of requests."""

    def metrics_path(self) -> str | None:
        """Path of the Prometheus endpoint, if any."""

    def speculation_from_counters(self, before: str, after: str) -> SpeculationSample:
        """Acceptance over a window from two Prometheus texts."""

    def speculation_from_responses(self, timings: Sequence[Mapping[str, Any]]) -> SpeculationSample:
        """Acceptance over the engine's own per-request fields."""

    def flush_cache_request(self) -> tuple[str, str] | None:
        """Method and path that empty the prefix cache, or None."""
