"""Acceptance of llama.cpp's speculation, from counters where the build has them, else from `timings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.engines import acceptance
from optimizer.engines.base import SpeculationSample
from optimizer.engines.prometheus import difference, parse

_COUNTERS = "1 + accepted / drafts over the window; steps without a draft are not counted"
_TIMINGS = "tokens per decoding step, derived: steps = predicted - 1 - accepted; steps without a draft are counted"
ASKED_BY = ("spec-type", "model-draft", "md", "spec-draft-model", "spec-default", "spec-draft-hf", "hfd")
"""Flags that ask for speculation, in any spelling, whether or not they are enough for it."""


def from_counters(before: str, after: str) -> SpeculationSample:
    """Acceptance between two scrapes of `/metrics` (`llamacpp:spec_decode_*`, which older builds do not have)."""
    start, end = parse(before), parse(after)
    moved = {
        name: difference(start, end, f"llamacpp:spec_decode_num_{name}_total")
        for name in ("drafts", "draft_tokens", "accepted_tokens")
    }
    if moved["draft_tokens"] is None or moved["accepted_tokens"] is None:
        return acceptance.unknown("this build has no llamacpp:spec_decode counters, or they ran backwards")
    return acceptance.sample(
        drafted=moved["draft_tokens"], accepted=moved["accepted_tokens"], steps=moved["drafts"], definition=_COUNTERS
    )


def from_responses(timings: Sequence[Mapping[str, Any]]) -> SpeculationSample:
    """Acceptance over the `timings` objects of responses.

    `draft_n` is there only when something was drafted, and the number of drafts never is: each decoding step emits
    one token more than it accepted, and the first token comes from the prompt, so the steps follow from both.
    """
    drafted = accepted = steps = 0.0
    seen = 0
    for timing in acceptance.parts(timings, "timings"):
        predicted = acceptance.count(timing, "predicted_n")
        if predicted is None:
            continue
        seen += 1
        right = acceptance.count(timing, "draft_n_accepted") or 0.0
        drafted += acceptance.count(timing, "draft_n") or 0.0
        accepted += right
        steps += max(0.0, predicted - 1.0 - right)
    if not seen:
        return acceptance.unknown("no response carried timings")
    return acceptance.sample(drafted=drafted, accepted=accepted, steps=steps, definition=_TIMINGS)
