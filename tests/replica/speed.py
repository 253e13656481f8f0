"""How fast the double pretends to be: one synthetic formula of the flags, pure and documented.

    step_ms   = 11.1 * (8 / tp)^0.5 * graph * nccl * batch      one forward pass of the target, 90 tok/s at tp 8
                graph = 1.45 without CUDA graphs (or batch above cuda-graph-max-bs), nccl = 0.97 with NCCL_PROTO=LL128,
                1.02 with Simple; batch = 1 + 0.04 * (running - 1)
    plain     : 1 token a step
    speculative: accept_len = 1 + sum(q^i, i = 1..steps), q = 1 - (1 - p)^(1 + 0.35 * (topk - 1)), capped by the tree;
                p = 0.60, or 0.45 to 0.75 by the name of the draft model
                cycle_ms = step_ms * (1 + 0.012 * (draft_tokens - 1)) + steps * 0.9 * (1 + 0.04 * (topk - 1))

The best of the usual grid lies at 4 to 6 steps; speculation without CUDA graphs loses against the plain server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TARGET_STEP_MS = 11.1
NCCL_PROTO = {"LL128": 0.97, "Simple": 1.02, "LL": 1.0}


@dataclass(frozen=True)
class Speed:
    """One decode cycle: how long it takes and how many tokens it yields on average."""

    cycle_ms: float
    accept_len: float
    draft_tokens: int

    @property
    def tok_s(self) -> float:
        """Output tokens per second of one stream."""
        return 1000.0 * self.accept_len / self.cycle_ms


def acceptance(draft_model: str | None) -> float:
    """Return the chance that one drafted token is accepted, from the draft model's name."""
    if not draft_model:
        return 0.60
    return 0.45 + 0.30 * hashlib.sha256(draft_model.encode()).digest()[0] / 255


def speed(args: Mapping[str, Any], env: Mapping[str, str], running: int = 1) -> Speed:
    """Return the speed of resolved server arguments (names with underscores) at a number of running requests."""
    tp = max(1, int(args.get("tp_size") or 1))
    graphs = not args.get("disable_cuda_graph") and running <= int(args.get("cuda_graph_max_bs_decode") or 512)
    step = TARGET_STEP_MS * (8 / tp) ** 0.5 * (1.0 if graphs else 1.45) * NCCL_PROTO.get(env.get("NCCL_PROTO", ""), 1.0)
    step *= 1 + 0.04 * (max(1, running) - 1)
    if not args.get("speculative_algorithm"):
        return Speed(step, 1.0, 0)
    steps = int(args["speculative_num_steps"])
    topk = int(args["speculative_eagle_topk"])
    drafts = int(args["speculative_num_draft_tokens"])
    chance = acceptance(args.get("speculative_draft_model_path"))
    q = 1 - (1 - chance) ** (1 + 0.35 * (topk - 1))
    accepted = 1 + sum(q**i for i in range(1, steps + 1))
    cycle = step * (1 + 0.012 * (drafts - 1)) + steps * 0.9 * (1 + 0.04 * (topk - 1))
    return Speed(cycle, min(accepted, float(drafts)), drafts)
