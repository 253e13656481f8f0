"""Acceptance of SGLang's speculation, from counters over a window or from `meta_info` of each request.

SGLang has had three definitions of accept rate; the verify count has kept its meaning in every release, so all is
built on it. The first token of a request comes from prefill and is taken out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.engines import acceptance
from optimizer.engines.base import SpeculationSample
from optimizer.engines.prometheus import difference, parse

_COUNTERS = "generated tokens (first of each request left out) per verify step over the window"
_META_INFO = "(completion tokens - 1) per verify step, summed over requests"

_DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
ASKED_BY = ("speculative-algorithm", "speculative-algo")
"""Flags that ask for speculation, in any spelling, whether or not they are enough for it."""


def from_counters(before: str, after: str) -> SpeculationSample:
    """Acceptance between two scrapes of `/metrics` (`sglang:spec_verify_calls_total`, in recent releases).

    The gauges `sglang:spec_accept_*` are levels of the last interval and are not used.
    """
    start, end = parse(before), parse(after)
    steps = difference(start, end, "sglang:spec_verify_calls_total")
    tokens = difference(start, end, "sglang:generation_tokens_total")
    if steps is None or tokens is None:
        return acceptance.unknown("this release has no sglang:spec_verify_calls counter, or it ran backwards")
    requests = difference(start, end, "sglang:num_requests_total") or 0.0
    accepted = max(0.0, tokens - requests - steps)
    return acceptance.sample(drafted=None, accepted=accepted, steps=steps, definition=_COUNTERS)


def from_responses(timings: Sequence[Mapping[str, Any]]) -> SpeculationSample:
    """Acceptance over the `meta_info` of responses; works with every release that speculates."""
    drafted: float | None = 0.0
    accepted = steps = 0.0
    seen = 0
    for info in acceptance.parts(timings, "meta_info"):
        tokens = acceptance.count(info, "completion_tokens")
        verified = acceptance.count(info, "spec_verify_ct")
        if tokens is None or verified is None:
            continue
        seen += 1
        steps += verified
        accepted += max(0.0, tokens - 1.0 - verified)
        proposed = acceptance.count(info, *_DRAFTED)
        drafted = None if proposed is None or drafted is None else drafted + proposed
    if not seen:
        return acceptance.unknown("no response carried meta_info.spec_verify_ct")
    return acceptance.sample(drafted=drafted, accepted=accepted, steps=steps, definition=_META_INFO)
