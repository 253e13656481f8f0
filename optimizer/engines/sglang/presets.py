"""Named parts of SGLang's search space, as far as a version has the flags.

Decides ladders, conditions and sensible first values; what is refused or merged is in the rules. Lossy settings
(accept thresholds, quantised caches outside `memory`) and flags that nothing reads are left out, with the reason.
"""

from __future__ import annotations

from dataclasses import replace

from optimizer.engines.base import ENV_PREFIX
from optimizer.engines.flagtable import FlagSet
from optimizer.engines.sglang.flags import table
from optimizer.engines.spaces import bare, choice, floats, ints, merge, only_when
from optimizer.engines.versions import version_key
from optimizer.search.space import Condition, Parameter, Space

STEPS, TOPK, TOKENS = "speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens"
TREE_RULE = f"{TOKENS} <= 1 + k + (s-1)*k*k where k={TOPK}, s={STEPS}"
NEVER_READ = "parsed and read nowhere in this version"
ALGORITHMS_SINCE = {"STANDALONE": "0.5.2", "NGRAM": "0.5.3"}
LOSSY = {f"speculative-accept-threshold-{n}": "below 1.0 it changes outputs" for n in ("single", "acc")}


def presets(version: str | None) -> dict[str, Space]:
    """Return every preset that exists in `version`, by name."""
    flags = table().at(version)
    parts = {
        "eagle3": _tree("EAGLE3"),
        "eagle": _tree("EAGLE"),
        "mtp": _tree("NEXTN"),
        "cuda-graphs": _cuda_graphs(flags),
        "nccl": _nccl(),
        "memory": _memory(flags),
        "scheduling": _scheduling(),
        "kernels": _kernels(flags),
    }
    if _has_algorithm(version, "NGRAM"):
        parts["ngram"] = _ngram()
    found = {name: _existing(part, flags) for name, part in parts.items()}
    whole = merge(*(found[n] for n in ("eagle3", "cuda-graphs", "memory", "scheduling", "kernels", "nccl")))
    return {**found, "all": whole}


def _has_algorithm(version: str | None, algorithm: str) -> bool:
    return version is None or version_key(version) >= version_key(ALGORITHMS_SINCE[algorithm])


def _existing(part: Space, flags: FlagSet) -> Space:
    """Leave out what this version has not, or parses and never reads."""
    kept: list[Parameter] = []
    dropped = {name: why for name, why in part.dropped.items() if name in flags or name.startswith(ENV_PREFIX)}
    for parameter in part.parameters:
        if parameter.name.startswith(ENV_PREFIX):
            kept.append(parameter)
        elif parameter.name not in flags:
            dropped[parameter.name] = f"not in version {flags.version}"
        else:
            kept.append(_known_values(parameter, flags))
    names = {p.name for p in kept}
    conditions = [
        Condition(c.when, tuple(n for n in c.then_absent if n in names))
        for c in part.conditions
        if any(n in names for n in c.then_absent)
    ]
    defaults = tuple(d for d in part.defaults if set(d) <= names)
    gone = {p.name for p in part.parameters} - names
    rules = tuple(r for r in part.rules if not any(name in r for name in gone))
    return replace(
        part, parameters=tuple(kept), conditions=tuple(conditions), rules=rules, defaults=defaults, dropped=dropped
    )


def _known_values(parameter: Parameter, flags: FlagSet) -> Parameter:
    choices = flags[parameter.name].choices
    if not choices or parameter.kind != "choice":
        return parameter
    return replace(parameter, ladder=tuple(v for v in parameter.ladder if str(v) in choices))


def _tree(algorithm: str) -> Space:
    rejection = "speculative-use-rejection-sampling"
    own_vocabulary = algorithm == "EAGLE3"
    dropped = {rejection: "an EAGLE-3 head with a small vocabulary of its own is refused"} if own_vocabulary else {}
    return Space(
        parameters=(
            choice("speculative-algorithm", algorithm, absent=True, why="off must be compared too"),
            ints(STEPS, 1, 2, 3, 4, 5, 6, 8, why="depth of the draft"),
            ints(TOPK, 1, 2, 4, 8, why="branches of the draft tree; 1 is a chain"),
            ints(TOKENS, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, log=True, why="tokens verified at once"),
            choice("speculative-attention-mode", "prefill", "decode", why="which kernel verifies, if the two differ"),
            bare("speculative-adaptive", why="the server changes the depth by load (chains only)"),
            *(() if own_vocabulary else (bare(rejection, why="samples the draft; chains only"),)),
        ),
        conditions=(
            only_when(
                "speculative-algorithm is absent",
                *(STEPS, TOPK, TOKENS, "speculative-attention-mode", "speculative-adaptive", rejection),
            ),
            only_when(f"{TOPK} == 1", TOKENS),
            only_when(f"{TOPK} != 1", "speculative-adaptive", rejection),
        ),
        rules=(TREE_RULE, f"{TOKENS} >= {STEPS} + 1"),
        defaults=(
            {},
            {"speculative-algorithm": algorithm, STEPS: 3, TOPK: 1},
            {"speculative-algorithm": algorithm, STEPS: 5, TOPK: 1},
            {"speculative-algorithm": algorithm, STEPS: 3, TOPK: 4, TOKENS: 16},
            {"speculative-algorithm": algorithm, STEPS: 5, TOPK: 4, TOKENS: 8},
        ),
        dropped={**LOSSY, **dropped},
    )


def _ngram() -> Space:
    prefix = "speculative-ngram-"
    own = ("min-bfs-breadth", "max-bfs-breadth", "match-type", "max-trie-depth", "branch-length", "capacity")
    names = tuple(f"{prefix}{n}" for n in (*own, "min-match-window-size", "max-match-window-size"))
    return Space(
        parameters=(
            choice("speculative-algorithm", "NGRAM", absent=True, why="off must be compared too"),
            ints(TOKENS, 4, 6, 8, 12, 16, 24, 32, log=True, why="tokens verified at once"),
            ints(names[0], 1, 2, 4, why="fewest branches"),
            ints(names[1], 1, 2, 4, 8, 10, 16, log=True, why="most branches; stands for topk"),
            choice(names[2], "BFS", "PROB", why="how matches are chosen"),
            ints(names[3], 4, 8, 12, 18, 24, 32, log=True, why="longest match"),
            ints(names[4], 4, 8, 12, 18, 24, log=True, why="longest branch"),
            ints(names[6], 1, 2, 3, 4, why="shortest match"),
            ints(names[7], 4, 8, 12, 16, why="longest match"),
            ints(names[5], 1_000_000, 10_000_000, log=True, why="n-grams kept"),
        ),
        conditions=(only_when("speculative-algorithm is absent", TOKENS, *names),),
        rules=(f"{names[0]} <= {names[1]}", f"{names[6]} <= {names[7]}"),
        defaults=({}, {"speculative-algorithm": "NGRAM", TOKENS: 12}),
    )


def _cuda_graphs(flags: FlagSet) -> Space:
    split = "cuda-graph-max-bs-decode" in flags
    largest = "cuda-graph-max-bs-decode" if split else "cuda-graph-max-bs"
    off = "disable-decode-cuda-graph" if split else "disable-cuda-graph"
    prefill_off = "disable-prefill-cuda-graph" if split else "disable-piecewise-cuda-graph"
    return Space(
        parameters=(
            bare(off, why="no graphs: slow, but a check that graphs do no harm"),
            ints(largest, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, log=True, absent=True, why="largest captured batch"),
            bare("disable-cuda-graph-padding", why="only exact batch sizes use a graph"),
            bare(prefill_off, why="no graphs while reading prompts"),
            bare("enable-torch-compile", why="compiled kernels; long start"),
            ints("torch-compile-max-bs", 1, 2, 4, 8, 16, 32, log=True, why="largest compiled batch"),
        ),
        conditions=(
            only_when(f"{off} is present", largest, "disable-cuda-graph-padding", "enable-torch-compile"),
            only_when("enable-torch-compile is absent", "torch-compile-max-bs"),
            only_when("enable-torch-compile is present", "disable-cuda-graph-padding"),
        ),
        defaults=({}, {largest: 16}),
    )


def _nccl() -> Space:
    return Space(
        parameters=(
            choice("env.NCCL_PROTO", "LL", "Simple", "LL,Simple", absent=True, why="wire protocol"),
            choice("env.NCCL_ALGO", "Ring", "Tree", absent=True, why="shape of the reduction"),
            ints("env.NCCL_MIN_NCHANNELS", 2, 4, 8, 16, 32, log=True, absent=True, why="fewest channels"),
            ints("env.NCCL_MAX_NCHANNELS", 2, 4, 8, 16, 32, log=True, absent=True, why="most channels"),
            ints("env.NCCL_BUFFSIZE", 1048576, 4194304, 8388608, log=True, absent=True, why="bytes per channel"),
            bare("disable-custom-all-reduce", why="small sums go through NCCL; else NCCL settings hardly matter"),
            bare("enable-nccl-nvls", why="sums inside the NVLink switch"),
            bare("enable-symm-mem", why="symmetric memory for sums"),
            bare("enable-torch-symm-mem", why="torch's symmetric memory for sums"),
            bare("enable-mscclpp", why="MSCCL++ for small sums"),
        ),
        rules=("env.NCCL_MIN_NCHANNELS <= env.NCCL_MAX_NCHANNELS",),
        defaults=({}, {"disable-custom-all-reduce": True, "env.NCCL_PROTO": "LL"}),
        dropped={"env.NCCL_PROTO=LL128": "can corrupt data where the platform is not cleared for it"},
    )


def _memory(flags: FlagSet) -> Space:
    return Space(
        parameters=(
            floats("mem-fraction-static", 0.7, 0.75, 0.8, 0.83, 0.85, 0.87, 0.89, 0.91, 0.93, absent=True),
            ints("chunked-prefill-size", 1024, 2048, 4096, 8192, 16384, log=True, absent=True, why="prompt piece"),
            ints("max-running-requests", 8, 16, 32, 48, 64, 128, 256, 512, log=True, absent=True),
            ints("max-prefill-tokens", 4096, 8192, 16384, 32768, log=True, why="tokens of one prefill batch"),
            choice("page-size", 1, 16, 32, 64, 128, absent=True, why="tokens per page of the cache"),
            choice("kv-cache-dtype", "auto", "fp8_e4m3", "fp8_e5m2", why="smaller cache; changes outputs"),
        ),
        defaults=({}, {"mem-fraction-static": 0.85, "chunked-prefill-size": 4096}),
    )


def _scheduling() -> Space:
    return Space(
        parameters=(
            choice("schedule-policy", "fcfs", "lpm", "lof", "dfs-weight", "random", why="which request first"),
            floats("schedule-conservativeness", 0.3, 0.5, 0.8, 1.0, 1.3, why="lower admits more at once"),
            bare("enable-mixed-chunk", why="prompt pieces together with decoding"),
            bare("disable-overlap-schedule", why="no overlap of scheduling and GPU"),
            ints("stream-interval", 1, 2, 4, 8, log=True, why="tokens per streamed chunk"),
            ints("scheduler-recv-interval", 1, 2, 4, 8, 16, log=True, why="steps between looks for new requests"),
            bare("enable-prefill-delayer", why="gathers prompts before they are read"),
            bare("disable-radix-cache", why="no prefix cache"),
        ),
        defaults=({}, {"enable-mixed-chunk": True}),
        dropped={"num-continuous-decode-steps": NEVER_READ},
    )


def _kernels(flags: FlagSet) -> Space:
    kernels = ("triton", "flashinfer", "fa3", "fa4", "trtllm_mha", "trtllm_mla", "flashmla", "cutlass_mla")
    moe = ("auto", "triton", "triton_kernel", "flashinfer_trtllm", "flashinfer_cutlass", "deep_gemm", "cutlass")
    return Space(
        parameters=(
            choice("attention-backend", *kernels, absent=True, why="pin it while topk or page size vary"),
            choice("prefill-attention-backend", *kernels, absent=True),
            choice("decode-attention-backend", *kernels, absent=True),
            choice("sampling-backend", "flashinfer", "pytorch", absent=True),
            ints("triton-attention-num-kv-splits", 4, 8, 16, 32, log=True),
            choice("moe-runner-backend", *moe, why="kernels of the experts"),
            choice("fp8-gemm-backend", "auto", "deep_gemm", "cutlass", "triton", "flashinfer_trtllm"),
            bare("enable-flashinfer-allreduce-fusion"),
            bare("disable-flashinfer-autotune"),
        ),
        conditions=(
            only_when(
                "attention-backend != triton and decode-attention-backend != triton", "triton-attention-num-kv-splits"
            ),
        ),
        defaults=({}, {"attention-backend": "flashinfer"}),
    )
