"""Speculative decoding in SGLang: what is forced, filled in and refused.

Decides on algorithm, steps, topk and draft tokens; attention and memory consequences are in the other rule modules.
"""

from __future__ import annotations

from optimizer.engines.resolution import Resolution

EAGLE_FAMILY = ("EAGLE", "EAGLE3", "STANDALONE")
SPEC_MAX_RUNNING = 48
"""Requests that run at once with speculation, unless given."""
TREE = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")


def tree_capacity(steps: int, topk: int) -> int:
    """Return the most draft tokens that a tree of this depth and width can hold, root included."""
    return 1 + topk + (steps - 1) * topk * topk


def speculation(state: Resolution) -> None:
    """Apply the rules of the chosen algorithm; without one, every speculative flag is idle."""
    algorithm = (state.text("speculative-algorithm") or "").upper()
    if not algorithm or algorithm == "NONE":
        for name in [n for n in state.values if n.startswith("speculative-")]:
            state.ignore(name, "no speculative-algorithm: nothing is drafted")
        return
    state.values["speculative-algorithm"] = "EAGLE" if algorithm == "NEXTN" else algorithm
    state.fill("max-running-requests", SPEC_MAX_RUNNING)
    if state.values["speculative-algorithm"] in EAGLE_FAMILY:
        _tree(state)


def _tree(state: Resolution) -> None:
    steps, topk, tokens = (state.number(name) for name in TREE)
    if steps is None:
        if topk is not None or tokens is not None:
            state.reject("give speculative-num-steps, speculative-eagle-topk and speculative-num-draft-tokens together")
        return
    if topk is None:
        state.reject("speculative-num-steps without speculative-eagle-topk fails at start: give all three")
        return
    if topk == 1:
        why = "a chain (topk 1) verifies its drafted tokens and one bonus token: steps + 1"
        state.force("speculative-num-draft-tokens", steps + 1, why)
        return
    if tokens is not None and tokens > tree_capacity(steps, topk):
        state.reject(
            f"speculative-num-draft-tokens {tokens}: a tree of {steps} steps and topk {topk} holds at most "
            f"{tree_capacity(steps, topk)}"
        )
