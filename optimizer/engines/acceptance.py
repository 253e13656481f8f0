"""Builds a `SpeculationSample` from counts, so that all engines mean the same by acceptance.

Accept length counts the bonus token: 1.0 means that nothing was accepted. Accept rate is accepted / drafted tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from optimizer.engines.base import SpeculationSample

NO_DATA = "not told"


def sample(*, drafted: float | None, accepted: float | None, steps: float | None, definition: str) -> SpeculationSample:
    """Return the sample of one window; a ratio without a denominator stays None."""
    length = 1.0 + accepted / steps if accepted is not None and steps else None
    rate = min(1.0, accepted / drafted) if accepted is not None and drafted else None
    return SpeculationSample(
        drafted_tokens=None if drafted is None else round(drafted),
        accepted_tokens=None if accepted is None else round(accepted),
        verify_steps=None if steps is None else round(steps),
        accept_len=None if length is None else round(length, 6),
        accept_rate=None if rate is None else round(rate, 6),
        definition=definition,
    )


def unknown(why: str) -> SpeculationSample:
    """Return the sample of an engine that tells nothing."""
    return SpeculationSample(definition=f"{NO_DATA}: {why}")


def count(source: Mapping[str, Any], *names: str) -> float | None:
    """Return the first of some counts that a response carries; anything that is not a count is none."""
    for name in names:
        value = source.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value and value >= 0:
            return float(value)
    return None


def parts(responses: Iterable[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """Return the part named `key` of each response, or the response itself when it is that part already."""
    found = []
    for response in responses:
        inner = response.get(key)
        found.append(inner if isinstance(inner, Mapping) else response)
    return found
