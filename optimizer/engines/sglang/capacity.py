"""What SGLang derives from the GPU's memory: prompt piece, captured batches, memory fraction.

Decides numbers only, by version; a value that was asked for always stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.engines.sglang.request import Request

GIB = 1024
LATENT_PREFILL_CAP = {"0.4.9": 2048, "0.5.23": 8192}


@dataclass(frozen=True)
class Tier:
    """Defaults below a memory size: prompt piece, largest captured batch for small and for large tensor parallel."""

    below_mib: float
    chunk: int
    small_tp: int
    large_tp: int


FIRST = (
    Tier(20 * GIB, 2048, 8, 8),
    Tier(35 * GIB, 2048, 8, 80),
    Tier(60 * GIB, 4096, 32, 160),
    Tier(160 * GIB, 8192, 256, 512),
    Tier(float("inf"), 16384, 512, 512),
)
"""0.5.1 to 0.5.3."""
MIDDLE = (FIRST[0], Tier(35 * GIB, 2048, 24, 80), *FIRST[2:])
"""0.5.4 to 0.5.18."""
LATEST = (FIRST[0], Tier(35 * GIB, 4096, 48, 160), *FIRST[2:])
"""0.5.20 and later."""


def tier(request: Request, memory_mib: int) -> Tier:
    """Return the defaults for this much memory in this version."""
    table = LATEST if request.since("0.5.20") else MIDDLE if request.since("0.5.4") else FIRST
    return next(t for t in table if memory_mib < t.below_mib)


def graph_flag(request: Request) -> str:
    """Name of the flag that holds the largest captured batch."""
    return "cuda-graph-max-bs-decode" if request.split_graphs else "cuda-graph-max-bs"


def capacity(request: Request) -> None:
    """Fill in the prompt piece, the largest captured batch and the memory fraction."""
    if request.memory_mib is None:
        return
    if not request.since("0.5.1"):
        _first_generation(request, request.memory_mib)
        return
    state = request.state
    found = tier(request, request.memory_mib)
    state.fill("chunked-prefill-size", found.chunk)
    name = graph_flag(request)
    listed = state.text("cuda-graph-bs-decode" if request.split_graphs else "cuda-graph-bs")
    if listed:
        largest = max(int(w) for w in listed.split())
        if request.split_graphs:
            state.ignore(name, "the list of batch sizes decides the largest one")
            state.values[name] = largest
        else:
            state.force(name, largest, "the list of batch sizes decides the largest one")
    elif name not in state.values:
        largest = found.small_tp if (state.number("tp-size") or 1) < 4 else found.large_tp
        running = state.number("max-running-requests")
        if request.since("0.5.23") and running is not None and "max-running-requests" in state.given:
            largest = min(largest, running)
        state.fill(name, largest)
    if "mem-fraction-static" not in state.values and not request.model.multimodal:
        reserved = _reserved(request)
        state.fill("mem-fraction-static", round((request.memory_mib - reserved) / request.memory_mib, 3))


def _first_generation(request: Request, memory_mib: int) -> None:
    """0.4.9: the memory fraction first, from the parallel size alone."""
    state = request.state
    if memory_mib < 35 * GIB:
        state.fill("chunked-prefill-size", 2048)
        state.fill("cuda-graph-max-bs", 8 if (state.number("tp-size") or 1) < 4 else 80)
    else:
        state.fill("chunked-prefill-size", 8192 if memory_mib < 160 * GIB else 16384)
    if "mem-fraction-static" in state.values or request.model.multimodal:
        return
    parallel = (state.number("tp-size") or 1) * (state.number("pp-size") or 1)
    if memory_mib < 35 * GIB:
        reserved = (2.8 + parallel / 10) * GIB
    elif memory_mib < 90 * GIB:
        reserved = (9.5 + parallel / 2) * GIB
    elif memory_mib < 160 * GIB:
        reserved = (12 + parallel / 2) * GIB
    else:
        reserved = 32.0 * GIB
    reserved += 2 * GIB if request.algorithm else 0
    reserved += 4 * GIB if state.on("enable-dp-attention") else 0
    state.fill("mem-fraction-static", round((memory_mib - reserved) / memory_mib, 3))


def prefill_buckets(largest: int) -> int:
    """Return how many prompt sizes are captured up to `largest` tokens."""
    steps = [range(4, 33, 4), range(48, 257, 16), range(288, 513, 32), range(576, 1025, 64), range(1280, 4097, 256)]
    sizes = [s for span in steps for s in span] + list(range(4608, largest + 1, 512))
    return sum(1 for s in sizes if s <= largest)


def _reserved(request: Request) -> float:
    """MiB kept free of weights and cache (0.5.1 and later)."""
    state = request.state
    chunk = state.number("chunked-prefill-size") or 0
    tokens = chunk if chunk > 0 else state.number("max-prefill-tokens") or 16384
    reserved = 512 + max(tokens, 2048) * 1.5
    reserved += (state.number("tp-size") or 1) * (state.number("pp-size") or 1) / 8 * 1024
    largest = state.number(graph_flag(request)) or 0
    if not (request.split_graphs and decode_graphs_off(request)):
        reserved += largest * 2
    reserved += _attention_parallel(request, largest)
    if prefill_graphs(request):
        reserved += 1.5 * 1024 if request.model.latent_attention else prefill_buckets(_prefill_largest(request)) * 8
    if request.memory_mib is not None and request.memory_mib > 60 * GIB:
        reserved = max(reserved, 10 * 1024)
    return reserved + _draft_reserve(request)


def _attention_parallel(request: Request, largest: int) -> float:
    state = request.state
    if not state.on("enable-dp-attention"):
        return 0.0
    replicas = state.number("dp-size") or 1
    return largest * replicas * (4.5 if largest > 300 else 3)


def _draft_reserve(request: Request) -> float:
    """Room for the draft model: a fixed sum until 0.5.13, none of its own since."""
    if not request.algorithm or request.since("0.5.14"):
        return 0.0
    if request.algorithm == "STANDALONE":
        return 6 * 1024
    if request.algorithm == "NGRAM":
        return 0.0
    return (4 if request.since("0.5.10") else 2) * 1024


def decode_graphs_off(request: Request) -> bool:
    """Say whether decoding runs without graphs."""
    state = request.state
    if state.text("cuda-graph-backend-decode") is not None:
        return state.text("cuda-graph-backend-decode") == "disabled"
    return state.on("disable-cuda-graph") or state.on("disable-decode-cuda-graph")


def prefill_graphs(request: Request) -> bool:
    """Say whether prompts are read with graphs: on by default since 0.5.10, with exceptions by version."""
    state = request.state
    if not request.since("0.5.10"):
        return state.on("enable-piecewise-cuda-graph")
    if not request.split_graphs:
        return not state.on("disable-piecewise-cuda-graph") and not _piecewise_impossible(request)
    backend = state.text("cuda-graph-backend-prefill")
    if backend is not None:
        return backend != "disabled"
    if state.on("disable-prefill-cuda-graph") or state.on("disable-cuda-graph"):
        return False
    if not request.since("0.5.20") and (_segments_impossible(request) or request.model.latent_attention):
        return False
    if state.number("pp-size") not in (None, 1) or request.model.multimodal:
        return False
    return not state.on("enable-two-batch-overlap")


def _piecewise_impossible(request: Request) -> bool:
    state = request.state
    blocking = ("enable-torch-compile", "enable-dp-attention", "enable-symm-mem", "enable-lora", "enable-eplb")
    if any(state.on(name) for name in blocking if name in state.flags):
        return True
    return state.number("pp-size") not in (None, 1) or request.model.multimodal


def _segments_impossible(request: Request) -> bool:
    """Segmented capture of prompts (0.5.14 to 0.5.18) goes without adapters and attention data parallelism."""
    return any(request.state.on(n) for n in ("enable-lora", "enable-dp-attention") if n in request.state.flags)


def _prefill_largest(request: Request) -> int:
    state = request.state
    for name in ("cuda-graph-max-bs-prefill", "piecewise-cuda-graph-max-tokens"):
        given = state.number(name) if name in state.flags else None
        if given is not None:
            return given
    largest = state.number("chunked-prefill-size") or 0
    total = state.number("max-total-tokens")
    return min(largest, total) if total is not None else largest
