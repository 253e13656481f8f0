"""vLLM's own failures, the stages of its log, and the names of its settings.

Decides which texts of vLLM name which cause; leaves the shared texts to the catalogue and the choice to `explain`.
"""

from __future__ import annotations

from optimizer.engines import catalogue, silent
from optimizer.engines.base import Explanation, FailureContext
from optimizer.engines.causes import Catalogue, Stage, Tier, cause, marks
from optimizer.engines.explain import explain as explain_with

C, D, G, S = Tier.CAUSE, Tier.DECISIVE, Tier.GENERAL, Tier.SYMPTOM

CAUSES = (
    cause(
        "gpu_busy_leftover",
        D,
        r"free memory on device .{0,60}on startup is less than desired",
        r"no available memory .{0,40}other processes|gpu memory used by other processes",
        r"initial free memory .{0,40}current free memory|error in memory profiling",
        r"vllm::(?:enginecore|worker)\S*\s+\d{3,6} ?mib",
        summary="less GPU memory is free at the start than the memory fraction asks for",
        remedy="end leftovers of earlier servers and wait for idle memory; if only the desktop or driver is "
        "there, lower {mem}",
    ),
    cause(
        "oom_kv_cache",
        D,
        r"no available memory for the cache blocks|larger than the available kv cache memory",
        r"to serve at least one request with the model's max seq len",
        r"is larger than the maximum number of tokens that can be stored in kv cache",
        r"kv cache is needed, which is larger|kv blocks.{0,40}(?:insufficient|not enough)",
        r"not enough (?:memory|blocks) for (?:the )?kv|exceeds available mamba cache blocks",
        summary="the KV cache left after the weights is smaller than one full-length request",
        remedy="lower {ctx} (the message may estimate a value), raise {mem}, or use {kvdtype}",
    ),
    cause(
        "oom_kv_cache",
        D,
        r"is less than requested memory for kv",
        summary="the KV cache asked for is larger than the memory that is free",
        remedy="lower VLLM_CPU_KVCACHE_SPACE (it beats --kv-cache-memory-bytes), or {mem} where neither is given",
    ),
    cause(
        "unsupported_combination",
        D,
        r"user-specified max_model_len \(?(?P<asked>\d+)\)? is greater than the derived",
        summary="the context asked for ({asked}) is longer than the model was made for",
        remedy="lower {ctx}; the line names the model's own limit",
    ),
    cause(
        "model_not_found",
        D,
        r"invalid repository id or local directory specified: '(?P<what>[^']{1,200})'",
        near=r"validation errors? for speculativeconfig",
        stop=False,
        summary="the draft model {what} was not found",
        remedy="correct the path given as {draft}",
    ),
    cause(
        "unsupported_combination",
        D,
        r"not enough allowed numa nodes to bind threads",
        summary="the CPU backend wants a NUMA node for each rank, and the host has fewer",
        remedy="lower {tp}, or bind threads by hand with VLLM_CPU_OMP_THREADS_BIND",
    ),
    cause(
        "oom_runtime",
        C,
        r"out of memory occurred when warming up (?:sampler|pooler)",
        summary="GPU memory ran out in the warm-up of the sampler, beside the KV cache",
        remedy="lower {seqs} or {mem}",
    ),
    cause(
        "invalid_flag",
        D,
        r"validation errors? for (?P<what>speculativeconfig|\w+config)\b",
        summary="vLLM refuses a setting ({what})",
        remedy="read the lines below: they name the field, the value and what is allowed",
        near=r"input_type=|type=(?!value_error)\w+_(?:type|parsing|error|forbidden)"
        r"|extra inputs are not permitted|extra_forbidden",
        unless=r"type=value_error|type=assertion_error|\b(?:value error|assertion failed), ",
    ),
    cause(
        "unsupported_combination",
        C,
        r"validation errors? for (?P<what>\w+config)\b",
        summary="vLLM refuses this combination of settings ({what})",
        remedy="read the lines below: they name the settings that exclude each other",
        unless=r"does not recognize this architecture|hfvalidation|not a valid model|model architectures",
        confidence=0.7,
    ),
    cause(
        "oom_cuda_graph_capture",
        C,
        r"(?:cuda ?graph|graph captur)\w*.{0,120}out of memory|out of memory.{0,120}(?:cuda ?graph|graph captur)",
        summary="GPU memory ran out while capturing graphs",
    ),
    cause(
        "cuda_graph_capture_failed",
        G,
        r"(?:cuda ?graph|graph) captur\w* (?:failed|error)",
        r"error (?:during|while) captur\w+ (?:cuda )?graph",
        r"file \".{0,200}(?:cudagraph_utils|cuda_graph|cudagraph)\w*\.py\"",
        near=r"\w+error: ",
        unless=r"out of memory|custom_all_?reduce|no kernel image",
        confidence=0.5,
    ),
    cause("killed_host_oom", G, r"failed core proc\(s\): \{[^}]*: -9"),
    cause(
        "scheduler_crash",
        S,
        r"failed core proc\(s\): \{\}",
        summary="the engine ended while starting, and the lines that say why are missing",
        remedy="fetch the log from further up; with no error there, the kernel may have killed it (dmesg)",
    ),
)

STAGES = marks(
    (Stage.READY, r"application startup complete"),
    (Stage.SERVING, r"avg prompt throughput|\badded request \S|while processing method start_worker_execution_loop"),
    (Stage.HTTP, r"starting vllm (?:api )?server|init engine \(profile|uvicorn running on"),
    (Stage.GRAPHS, r"capturing (?:cuda ?graph|the model for)|graph capturing (?:begin|finished)"),
    (Stage.GRAPHS, r"capturing cudagraphs|# gpu blocks: \d+"),
    (Stage.KV_CACHE, r"available kv cache memory|gpu kv cache size|maximum concurrency for"),
    (Stage.KV_CACHE, r"# (?:gpu|cuda) blocks|loading model weights took|model loading took"),
    (Stage.KV_CACHE, r"memory profiling (?:takes|results)"),
    (Stage.WEIGHTS, r"starting to load model|loading (?:safetensors|pt) checkpoint shards"),
    (Stage.WEIGHTS, r"loading weights took|using model weights format"),
    (Stage.INIT, r"initializing a(?:n)? (?:v\d )?(?:llm )?engine|world_size=\d+ rank=|vllm is using nccl"),
    (Stage.ARGUMENTS, r"non-default args|vllm api server version|automatically detected platform"),
)

WORDS = {
    "mem": ("gpu-memory-utilization",),
    "seqs": ("max-num-seqs",),
    "graphs": ("max-cudagraph-capture-size", "cudagraph-capture-sizes"),
    "ctx": ("max-model-len",),
    "chunk": ("max-num-batched-tokens",),
    "tp": ("tensor-parallel-size",),
    "kvdtype": ("--kv-cache-dtype fp8",),
    "attn": ("attention-backend",),
    "no_car": ("disable-custom-all-reduce",),
    "no_graph": ("enforce-eager",),
    "hostmem": ("swap-space", "cpu-offload-gb", "kv-offloading-size"),
    "draft_tokens": ("num_speculative_tokens",),
    "draft": ("--speculative-config model",),
    "model": ("model",),
}

OOM = {
    Stage.GRAPHS: "lower {mem}, {graphs} or {seqs}, or add {no_graph}",
    Stage.SERVING: "lower {mem}, {chunk} or {seqs}",
    Stage.WEIGHTS: "raise {tp}, use a quantised checkpoint, or check CUDA_VISIBLE_DEVICES; {mem} cannot help",
}

CATALOGUE = Catalogue("vllm", (*CAUSES, *catalogue.SYSTEM, *catalogue.PYTHON), STAGES, WORDS, OOM)


def explain(text: str, context: FailureContext) -> Explanation:
    """Explain a failure of vLLM from its log (all processes) and what else is known; `none` when there is none."""
    return silent.or_silent(CATALOGUE.engine, text, explain_with(CATALOGUE, text, context), context.config)
