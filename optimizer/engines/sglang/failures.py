"""SGLang's own failures, the stages of its log, and the names of its settings.

Decides which texts of SGLang name which cause; leaves the shared texts to the catalogue and the choice to `explain`.
"""

from __future__ import annotations

from optimizer.engines import catalogue, silent
from optimizer.engines.base import Explanation, FailureContext
from optimizer.engines.causes import Catalogue, Stage, Tier, cause, marks
from optimizer.engines.explain import explain as explain_with

C, D, G, S = Tier.CAUSE, Tier.DECISIVE, Tier.GENERAL, Tier.SYMPTOM

CAUSES = (
    cause(
        "oom_kv_cache",
        C,
        r"please try to increase --mem-fraction-static",
        r"leave no gpu memory for the kv cache",
        r"not enough (?:gpu )?memory for (?:hybrid|mamba|linear|the kv)|state cache is too small",
        r"max_total_num_tokens.{0,40}(?:too small|less than|<= ?0)",
        r"not enough memory\. please try",
        summary="after the weights no room is left for the KV cache",
        remedy="raise {mem}; if a little more gives CUDA out of memory, no value works: lower {seqs}, {graphs} "
        "or {ctx} instead",
    ),
    cause(
        "oom_runtime",
        C,
        r"(?:decode|prefill) out of memory|out of memory even after retracting",
        r"failed to allocate (?:kv|token)|prefill out of memory|try to lower your batch size",
        r"cannot allocate (?:kv|tokens)",
        summary="the pool of KV tokens ran out while serving",
        remedy="lower {seqs}, or raise {mem}; with a page size above 1 try page size 1",
    ),
    cause(
        "gpu_busy_leftover",
        D,
        r"memory capacity is unbalanced|memory imbalance|some gpus may be occupied by other processes",
        r"sglang::(?:scheduler|detokenizer|data_parallel)\S*\s+\d{3,6} ?mib",
        summary="some GPUs have less free memory than others: another process holds them, or the cards differ",
    ),
    cause(
        "gpu_busy_leftover",
        G,
        r"^\s*\S+\s+\d+\s+1\s+sglang::(?:scheduler|detokenizer)",
        summary="processes of an earlier server live on without their parent",
    ),
    cause(
        "unsupported_combination",
        C,
        r"unknown speculative algorithm|is not supported in (?:decode|prefill) attention backend",
        r"only supports? topk|does not support speculative decoding",
        r"not support(?:ed)? .{0,30}(?:dp attention|eagle|speculative)",
        r"cannot be used (?:together )?with|is incompatible with|is not compatible with",
        r"speculative_(?:num_steps|eagle_topk|num_draft_tokens)\b.{0,60}(?:must|should|assert)",
        summary="SGLang refuses this combination of settings",
        unless=r"asgi application",
    ),
    cause(
        "cuda_graph_capture_failed",
        C,
        r"capture (?:prefill |draft |draft extend |target )?(?:cuda|npu|cpu)? ?graph failed(?!.{0,400}out of memory)",
        remedy="try another {attn} or release; {no_graph} only to confirm. The hints about memory printed below "
        "it do not apply",
        unless=r"out of memory|selected index k|custom_all_?reduce|no kernel image|unsupported arch"
        r"|torch\.o|undefined symbol|is not supported|assertionerror|ninja|nvcc|gloo/transport|nccl error"
        r"|ncclsystemerror|remote process",
    ),
    cause(
        "oom_cuda_graph_capture",
        C,
        r"capture .{0,30}graph failed.{0,300}out of memory",
        r"^torch\.o(?:u|ut|uto|utof|utofm)?$",
        summary="GPU memory ran out while capturing graphs",
        near=r"graph",
    ),
    cause(
        "unsupported_combination",
        S,
        r"capture .{0,30}graph failed",
        near=r"is not supported|assertionerror|unsupported arch",
    ),
    cause(
        "killed_host_oom",
        G,
        r"rank \d+ scheduler (?:is dead|died).{0,80}exit code: ?-9",
        r"^(?:\[[^\]]*\] ?)?exit code: ?-9",
        summary="a scheduler was killed with signal 9 while starting, as the kernel does when host memory runs out",
    ),
)

STAGES = marks(
    (Stage.READY, r"fired up and ready to roll"),
    (Stage.SERVING, r"\b(?:decode|prefill) batch[^#]{0,12}#"),
    (Stage.HTTP, r"application startup complete|uvicorn running on|started server process"),
    (Stage.HTTP, r"waiting for application startup"),
    (Stage.GRAPHS, r"capture .{0,30}graph begin|capturing batches|capture .{0,20}graph bs"),
    (Stage.HTTP, r"max_total_num_tokens=\d+, "),
    (Stage.KV_CACHE, r"load weight end|kv cache is allocated|memory pool end|kv cache va upper|memory profiling"),
    (Stage.WEIGHTS, r"load weight begin|loading (?:safetensors|pt) checkpoint shards|using model weights format"),
    (Stage.INIT, r"init (?:torch distributed|parallel) begin|init nccl|automatically detected platform"),
    (Stage.ARGUMENTS, r"server_args="),
)

WORDS = {
    "mem": ("mem-fraction-static",),
    "seqs": ("max-running-requests",),
    "graphs": ("cuda-graph-max-bs-decode", "cuda-graph-max-bs", "cuda-graph-bs-decode", "cuda-graph-bs"),
    "ctx": ("context-length",),
    "chunk": ("chunked-prefill-size",),
    "tp": ("tp-size", "tensor-parallel-size", "tp"),
    "kvdtype": ("--kv-cache-dtype fp8_e5m2",),
    "attn": ("attention-backend",),
    "no_car": ("disable-custom-all-reduce",),
    "no_graph": ("disable-cuda-graph",),
    "hostmem": ("hicache-ratio", "hicache-size", "cpu-offload-gb"),
    "draft_tokens": ("speculative-num-draft-tokens",),
    "draft": ("speculative-draft-model-path", "speculative-draft-model"),
    "model": ("model-path", "model"),
    "timeout": ("dist-timeout",),
}

OOM = {
    Stage.GRAPHS: "lower {mem} or {graphs}, fewer {draft_tokens}, or {no_graph}",
    Stage.SERVING: "lower {mem} (it leaves too little for activations), {chunk} or {seqs}",
}

CATALOGUE = Catalogue("sglang", (*CAUSES, *catalogue.SYSTEM, *catalogue.PYTHON), STAGES, WORDS, OOM)


def explain(text: str, context: FailureContext) -> Explanation:
    """Explain a failure of SGLang from its log (all ranks) and what else is known; label `none` when there is none."""
    return silent.or_silent(CATALOGUE.engine, text, explain_with(CATALOGUE, text, context), context.config)
