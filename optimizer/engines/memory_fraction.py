"""Which memory fractions can still work, after failures that want more and failures that want less.

Decides when the interval is empty, and which other flags can open it. What a failure is called is decided by the
engines' `failures` modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from optimizer.engines.base import Config

WANT_MORE = frozenset({"oom_kv_cache", "oom_weights"})
"""The static part (weights, cache) did not fit below this fraction."""
WANT_LESS = frozenset({"oom_cuda_graph_capture", "oom_runtime"})
"""What runs beside it (graphs, activations, a drafter) did not fit above this fraction."""
STEP = 0.01
"""Smallest difference of fractions that is worth a start."""
FLAG = {"sglang": "mem-fraction-static", "vllm": "gpu-memory-utilization"}
KNOBS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "sglang": (
        ("max-running-requests", "lower it: every request keeps logits and a draft tree"),
        ("cuda-graph-max-bs-decode", "lower it (cuda-graph-max-bs before 0.5.14): fewer captured batches"),
        ("chunked-prefill-size", "lower it: shorter prompt pieces need less at once"),
        ("context-length", "lower it: the pool must hold one whole sequence"),
        ("speculative-num-draft-tokens", "lower it, or take a smaller drafter"),
        ("tp-size", "raise it: the weights are spread over more GPUs"),
    ),
    "vllm": (
        ("max-num-seqs", "lower it: fewer requests at once"),
        ("max-num-batched-tokens", "lower it: shorter steps need less at once"),
        ("max-cudagraph-capture-size", "lower it: fewer captured batches"),
        ("max-model-len", "lower it: the cache must hold one whole sequence"),
        ("tensor-parallel-size", "raise it: the weights are spread over more GPUs"),
    ),
}


@dataclass(frozen=True)
class MemoryInterval:
    """Fractions that may work: above `low` (needed by the static part), below `high` (left to the rest)."""

    flag: str
    low: float
    high: float
    advice: tuple[str, ...] = ()
    """What to change instead, best first; only when nothing is left between the two."""

    @property
    def empty(self) -> bool:
        """Say whether no fraction is left that is worth a start."""
        return self.high - self.low <= STEP + 1e-9

    def allows(self, fraction: float) -> bool:
        """Say whether a fraction lies strictly inside."""
        return self.low < fraction < self.high


def memory_interval(engine: str, failures: Iterable[tuple[float, str]], config: Config) -> MemoryInterval | None:
    """Narrow the interval by failures (fraction, label) of configurations that differ in nothing else.

    Returns None for an engine without such a flag. `config` decides which advice applies (no drafter, no advice on it).
    """
    flag = FLAG.get(engine)
    if flag is None:
        return None
    low, high = 0.0, 1.0
    for fraction, label in failures:
        if label in WANT_MORE:
            low = max(low, fraction)
        elif label in WANT_LESS:
            high = min(high, fraction)
    interval = MemoryInterval(flag, low, high)
    if not interval.empty:
        return interval
    speculates = any(name in config for name in ("speculative-algorithm", "spec-method", "spec-model"))
    advice = [f"{n}: {text}" for n, text in KNOBS[engine] if speculates or not n.startswith("speculative")]
    return MemoryInterval(flag, low, high, tuple(advice))
