"""Acceptance of vLLM's speculation, from its counters (exact over a window) or its per-request metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.engines import acceptance
from optimizer.engines.base import SpeculationSample
from optimizer.engines.prometheus import difference, parse

_DEFINITION = "1 + accepted / drafts; steps without a draft are not counted"
ASKED_BY = ("speculative-config", "spec-method", "spec-model", "spec-tokens", "sc")
"""Flags that ask for speculation, in any spelling, whether or not they are enough for it."""


def from_counters(before: str, after: str) -> SpeculationSample:
    """Acceptance between two scrapes of `/metrics` (`vllm:spec_decode_num_*`)."""
    start, end = parse(before), parse(after)
    moved = {
        name: difference(start, end, f"vllm:spec_decode_num_{name}_total")
        for name in ("drafts", "draft_tokens", "accepted_tokens")
    }
    if moved["draft_tokens"] is None or moved["accepted_tokens"] is None:
        return acceptance.unknown("no vllm:spec_decode counters (speculation off, stats off), or they ran backwards")
    return acceptance.sample(
        drafted=moved["draft_tokens"], accepted=moved["accepted_tokens"], steps=moved["drafts"], definition=_DEFINITION
    )


def from_responses(timings: Sequence[Mapping[str, Any]]) -> SpeculationSample:
    """Acceptance over `metrics.speculative_decoding` of responses (needs `--per-request-spec-decode-metrics`)."""
    drafted = accepted = steps = 0.0
    seen = 0
    for metrics in acceptance.parts(acceptance.parts(timings, "metrics"), "speculative_decoding"):
        proposed = acceptance.count(metrics, "num_draft_tokens")
        right = acceptance.count(metrics, "num_accepted_draft_tokens")
        if proposed is None or right is None:
            continue
        seen += 1
        drafted += proposed
        accepted += right
        steps += acceptance.count(metrics, "num_spec_steps") or 0.0
    if not seen:
        return acceptance.unknown("no response carried metrics.speculative_decoding")
    return acceptance.sample(drafted=drafted, accepted=accepted, steps=steps or None, definition=_DEFINITION)
