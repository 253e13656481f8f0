"""Named parts of vLLM's search space.

Decides ladders and sensible first values; what is refused or merged is in `rules.py`.
"""

from __future__ import annotations

from optimizer.engines.spaces import choice, ints, merge, only_when
from optimizer.search.space import Space


def presets(version: str | None) -> dict[str, Space]:
    """Return every preset by name."""
    parts = {"ngram": _ngram()}
    return {**parts, "all": merge(*parts.values())}


def _ngram() -> Space:
    return Space(
        parameters=(
            choice("spec-method", "ngram", absent=True, why="off must be compared too"),
            ints("spec-tokens", 1, 2, 3, 4, 5, 6, 8, 10, log=True, why="tokens drafted at once"),
            ints("spec-prompt-lookup-min", 1, 2, 3, 4, 5, why="shortest match"),
            ints("spec-prompt-lookup-max", 1, 2, 3, 4, 5, 6, 8, 10, why="longest match"),
        ),
        conditions=(
            only_when("spec-method is absent", "spec-tokens", "spec-prompt-lookup-min", "spec-prompt-lookup-max"),
        ),
        rules=("spec-prompt-lookup-min <= spec-prompt-lookup-max",),
        defaults=(
            {},
            {"spec-method": "ngram", "spec-tokens": 4, "spec-prompt-lookup-min": 2, "spec-prompt-lookup-max": 4},
        ),
    )
