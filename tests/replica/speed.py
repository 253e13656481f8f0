"""How fast the double pretends to be: one synthetic formula of the flags, pure and documented.

    step_ms   = 11.1 * (8 / tp)^0.5 * graph * nccl * batch      one forward pass of the target, 90 tok/s at tp 8
                graph = 1.45 without CUDA graphs (or batch above cuda-graph-max-bs), nccl = 0.97 with NCCL_PROTO=LL128,
                1.02 with Simple; batch = 1 + 0.04 * (running - 1)
    plain     : 1 token a step
    speculative: accept_len = 1 + sum(q^i, i = 1..steps); q = p + (w - p) * min(1, (draft_tokens - 1) / (steps * topk)),
                w = 1 - (1 - p)^(1 + 0.15 * (topk - 1)); p = 0.50, or 0.40 to 0.60 by the name of the draft model
                cycle_ms = step_ms * (1 + 0.03 * (draft_tokens - 1)) + steps * 1.6 * (1 + 0.05 * (topk - 1)),
                drafting 1.45 times slower without CUDA graphs too

As on real hosts: short drafts win (up to 40 % here), long ones lose, and without CUDA graphs all of them lose.
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
        return 0.50
    return 0.40 + 0.20 * hashlib.sha256(draft_model.encode()).digest()[0] / 255


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
    wide = 1 - (1 - chance) ** (1 + 0.15 * (topk - 1))
    q = chance + (wide - chance) * min(1.0, (drafts - 1) / (steps * topk))
    accepted = 1 + sum(q**i for i in range(1, steps + 1))
    drafting = steps * 1.6 * (1 + 0.05 * (topk - 1)) * (1.0 if graphs else 1.45)
    cycle = step * (1 + 0.03 * (drafts - 1)) + drafting
    return Speed(cycle, min(accepted, float(drafts)), drafts)
