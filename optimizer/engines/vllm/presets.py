"""Named parts of vLLM's search space, as far as a version has the flags.

Decides ladders and sensible first values; what is refused or merged is in the rules.
"""

from __future__ import annotations

from dataclasses import replace

from optimizer.engines.base import ENV_PREFIX
from optimizer.engines.flagtable import FlagSet
from optimizer.engines.spaces import bare, choice, floats, ints, merge, only_when
from optimizer.engines.vllm.flags import table
from optimizer.engines.vllm.spec_rules import HIGH, LOW, METHOD, MODEL, TOKENS
from optimizer.search.space import Parameter, Space


def presets(version: str | None) -> dict[str, Space]:
    """Return every preset that exists in `version`, by name."""
    flags = table().at(version)
    parts = {
        "ngram": _ngram(),
        "eagle3": _drafted("eagle3"),
        "eagle": _drafted("eagle"),
        "mtp": _drafted("mtp"),
        "draft-model": _drafted("draft_model"),
        "cuda-graphs": _cuda_graphs(),
        "memory": _memory(),
        "scheduling": _scheduling(),
        "kernels": _kernels(),
        "nccl": _nccl(),
    }
    found = {name: _existing(part, flags) for name, part in parts.items()}
    whole = merge(*(found[n] for n in ("ngram", "cuda-graphs", "memory", "scheduling", "kernels", "nccl")))
    return {**found, "all": whole}


def _existing(part: Space, flags: FlagSet) -> Space:
    kept: list[Parameter] = []
    dropped = dict(part.dropped)
    for parameter in part.parameters:
        if parameter.name.startswith(ENV_PREFIX) or flags.find(parameter.name) is not None:
            kept.append(parameter)
        else:
            dropped[parameter.name] = f"not in version {flags.version}"
    names = {p.name for p in kept}
    return replace(
        part, parameters=tuple(kept), defaults=tuple(d for d in part.defaults if set(d) <= names), dropped=dropped
    )


def _ngram() -> Space:
    return Space(
        parameters=(
            choice(METHOD, "ngram", absent=True, why="off must be compared too"),
            ints(TOKENS, 1, 2, 3, 4, 5, 6, 8, 10, 16, log=True, why="tokens drafted at once"),
            ints(LOW, 1, 2, 3, 4, 5, why="shortest match"),
            ints(HIGH, 1, 2, 3, 4, 5, 6, 8, 10, why="longest match"),
        ),
        conditions=(only_when(f"{METHOD} is absent", TOKENS, LOW, HIGH),),
        rules=(f"{LOW} <= {HIGH}",),
        defaults=({}, {METHOD: "ngram", TOKENS: 4, LOW: 2, HIGH: 4}),
    )


def _drafted(method: str) -> Space:
    """The drafter is the study's own: search it as `spec-model`, so that it goes when nothing is drafted."""
    sampling = "spec-draft-sample-method"
    return Space(
        parameters=(
            choice(METHOD, method, absent=True, why="off must be compared too"),
            ints(TOKENS, 1, 2, 3, 4, 5, 6, 8, 10, log=True, why="tokens drafted in a chain"),
            choice(sampling, "greedy", "probabilistic", why="how the draft picks its tokens"),
        ),
        conditions=(only_when(f"{METHOD} is absent", TOKENS, sampling, MODEL),),
        defaults=({}, {METHOD: method, TOKENS: 3, sampling: "greedy"}),
        dropped={"spec-rejection-sample-method": "synthetic and fly change outputs"},
    )


def _cuda_graphs() -> Space:
    modes = ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "FULL", "PIECEWISE", "NONE")
    largest = "max-cudagraph-capture-size"
    return Space(
        parameters=(
            bare("enforce-eager", why="no graphs, no compilation"),
            choice("cudagraph-mode", *modes, absent=True, why="what is captured"),
            ints(largest, 16, 32, 64, 128, 256, 512, log=True, absent=True, why="largest captured batch"),
        ),
        conditions=(only_when("enforce-eager is present", "cudagraph-mode", largest),),
        defaults=({}, {"cudagraph-mode": "FULL_DECODE_ONLY"}),
    )


def _memory() -> Space:
    return Space(
        parameters=(
            floats("gpu-memory-utilization", 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, why="share of the memory"),
            choice("kv-cache-dtype", "auto", "fp8", why="smaller cache; changes outputs"),
            choice("block-size", 16, 32, 64, absent=True, why="tokens per block of the cache"),
            bare("no-enable-prefix-caching", why="no prefix cache"),
        ),
        defaults=({},),
    )


def _scheduling() -> Space:
    return Space(
        parameters=(
            ints("max-num-batched-tokens", 1024, 2048, 4096, 8192, 16384, 32768, log=True, why="tokens of one step"),
            ints("max-num-seqs", 16, 32, 64, 128, 256, 512, 1024, log=True, why="requests of one step"),
            bare("no-async-scheduling", why="no scheduling ahead of the GPU"),
            ints("stream-interval", 1, 2, 4, 8, log=True, why="tokens per streamed chunk"),
        ),
        rules=("max-num-seqs <= max-num-batched-tokens",),
        defaults=({}, {"max-num-batched-tokens": 8192, "max-num-seqs": 256}),
    )


def _kernels() -> Space:
    return Space(
        parameters=(
            choice("attention-backend", "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", absent=True, why="kernels"),
            choice("performance-mode", "balanced", "interactivity", "throughput", why="vLLM's own sets of defaults"),
        ),
        defaults=({},),
    )


def _nccl() -> Space:
    return Space(
        parameters=(
            choice("env.NCCL_PROTO", "LL", "Simple", "LL,Simple", absent=True, why="wire protocol"),
            choice("env.NCCL_ALGO", "Ring", "Tree", absent=True, why="shape of the reduction"),
            ints("env.NCCL_MIN_NCHANNELS", 2, 4, 8, 16, 32, log=True, absent=True, why="fewest channels"),
            bare("disable-custom-all-reduce", why="small sums go through NCCL; else NCCL settings hardly matter"),
        ),
        defaults=({}, {"disable-custom-all-reduce": True}),
        dropped={"env.NCCL_PROTO=LL128": "can corrupt data where the platform is not cleared for it"},
    )
