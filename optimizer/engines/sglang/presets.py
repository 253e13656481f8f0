"""Named parts of SGLang's search space.

Decides ladders and sensible first values; what is refused or merged is in the rules.
"""

from __future__ import annotations

from optimizer.engines.spaces import bare, choice, floats, ints, merge, only_when
from optimizer.search.space import Space

TREE_RULE = "speculative-num-draft-tokens <= 1 + k + (s-1)*k*k where k=speculative-eagle-topk, s=speculative-num-steps"


def presets(version: str | None) -> dict[str, Space]:
    """Return every preset by name."""
    parts = {"eagle3": _tree("EAGLE3"), "eagle": _tree("EAGLE"), "memory": _memory()}
    return {**parts, "all": merge(*parts.values())}


def _tree(algorithm: str) -> Space:
    steps, topk, tokens = "speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens"
    return Space(
        parameters=(
            choice("speculative-algorithm", algorithm, absent=True, why="off must be compared too"),
            ints(steps, 1, 2, 3, 4, 5, 6, 8, why="depth of the draft"),
            ints(topk, 1, 2, 4, 8, why="branches of the draft tree; 1 is a chain"),
            ints(tokens, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, log=True, why="tokens verified at once"),
            bare("disable-cuda-graph"),
        ),
        conditions=(only_when("speculative-algorithm is absent", steps, topk, tokens),),
        rules=(TREE_RULE,),
        defaults=({}, {"speculative-algorithm": algorithm, steps: 3, topk: 1, tokens: 4}),
    )


def _memory() -> Space:
    return Space(parameters=(floats("mem-fraction-static", 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92),))
