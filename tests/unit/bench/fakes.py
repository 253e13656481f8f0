"""Fakes for the bench tests: an engine that reads the scripted server's timings, and samples made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.bench.base import RequestSample
from optimizer.engines.base import SpeculationSample


class FakeEngine:
    """Speaks like llama.cpp: draft counts come in the timings, generated tokens in a counter."""

    name = "llamacpp"

    def __init__(self, *, name: str = "llamacpp", metrics: str | None = "/metrics", flush: bool = False) -> None:
        self.name = name
        self._metrics = metrics
        self._flush = flush

    def metrics_path(self) -> str | None:
        return self._metrics

    def speculation_from_counters(self, before: str, after: str) -> SpeculationSample:
        return SpeculationSample()

    def speculation_from_responses(self, timings: Sequence[Mapping[str, Any]]) -> SpeculationSample:
        drafted = sum(int(t.get("draft_n", 0)) for t in timings)
        accepted = sum(int(t.get("draft_n_accepted", 0)) for t in timings)
        total = sum(int(t.get("predicted_n", 0)) for t in timings)
        if not drafted:
            return SpeculationSample()
        return SpeculationSample(
            drafted, accepted, None, total / (total - accepted), accepted / drafted, "tokens per step"
        )

    def flush_cache_request(self) -> tuple[str, str] | None:
        return ("POST", "/flush_cache") if self._flush else None

    def lossy_flags(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(k for k, v in config.items() if v == "q8_0")


def sample(prompt: str = "code", **fields: Any) -> RequestSample:
    """Return a good request of 10 tokens in one second, first token at 0.1 s, unless told otherwise."""
    times = tuple(0.1 * (i + 1) for i in range(10))
    values: dict[str, Any] = {
        "prompt": prompt,
        "kind": prompt,
        "concurrency": 1,
        "repeat": 0,
        "start_s": 0.0,
        "first_token_s": 0.1,
        "end_s": 1.0,
        "prompt_tokens": 20,
        "output_tokens": 10,
        "stream_tokens": 10,
        "token_times_s": times,
        "chunk_tokens": (1,) * 10,
        "finish_reason": "length",
        "error": None,
        "text": "ten words of text",
    }
    return RequestSample(**{**values, **fields})
