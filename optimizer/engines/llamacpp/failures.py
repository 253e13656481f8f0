"""llama.cpp's own failures, the stages of its log, and the names of its settings.

Decides how a log of llama-server is read; its texts are in `texts`, those of the system and of CUDA in the catalogue,
and `explain` chooses. A server that dies without a word (a segmentation fault) is told from its exit code and settings.
"""

from __future__ import annotations

from dataclasses import replace

from optimizer.engines import catalogue, silent
from optimizer.engines.base import Blame, Config, Explanation, FailureContext
from optimizer.engines.causes import Catalogue, Stage, marks
from optimizer.engines.explain import explain as explain_with
from optimizer.engines.llamacpp.texts import CAUSES

STAGES = marks(
    (Stage.SERVING, r"slot +(?:launch|print_tim|release|update)|print_timing|eval time ="),
    (Stage.READY, r"server is listening|listening on http|model loaded$|all slots are idle"),
    (Stage.KV_CACHE, r"llama_new_context|llama_context:|llama_kv_cache|n_ctx +=|kv self size"),
    (Stage.KV_CACHE, r"initializing, n_slots|compute buffer"),
    (Stage.WEIGHTS, r"load_tensors|loading model|llama_model_load|llm_load"),
    (Stage.INIT, r"ggml_cuda_init|build(?:: |_info)|system info|found \d+ (?:cuda|vulkan|rocm)"),
)

WORDS = {
    "ctx": ("ctx-size", "c"),
    "chunk": ("ubatch-size", "ub"),
    "seqs": ("parallel", "np"),
    "kvdtype": ("-ctk q8_0 -ctv q8_0",),
    "mem": ("gpu-layers", "n-gpu-layers", "ngl"),
    "tp": ("the number of GPUs",),
    "attn": ("flash-attn", "fa"),
    "graphs": ("ubatch-size",),
    "no_graph": ("GGML_CUDA_DISABLE_GRAPHS=1",),
    "hostmem": ("cache-ram", "cram"),
    "draft_tokens": ("spec-draft-n-max", "draft-max"),
    "draft": ("model-draft", "md", "spec-draft-model"),
    "model": ("model", "m"),
}

OOM = {
    Stage.SERVING: "lower {ctx}, {seqs} or {chunk}, or put fewer layers on the GPU",
    Stage.KV_CACHE: "lower {ctx} or {chunk}, use {kvdtype}, or fewer -ngl layers",
    Stage.WEIGHTS: "fewer -ngl layers, a smaller quantisation, or more GPUs",
}

CATALOGUE = Catalogue("llamacpp", (*CAUSES, *catalogue.SYSTEM), STAGES, WORDS, OOM)

_QUANTISED = ("q8_0", "q5_0", "q5_1", "q4_0", "q4_1", "iq4_nl")
SEGFAULTS = frozenset({139, -11})


def explain(text: str, context: FailureContext) -> Explanation:
    """Explain a failure of llama-server; label `none` when nothing shows that there was one."""
    found = silent.or_silent(CATALOGUE.engine, text, explain_with(CATALOGUE, text, context), context.config)
    if found.label == "scheduler_crash" and (context.exit_code in SEGFAULTS or context.signal == 11):
        return _silent_crash(found, context.config)
    return found


def _silent_crash(found: Explanation, config: Config) -> Explanation:
    """Blame settings that are known to crash builds without a message, when they were asked for."""
    flash = str(config.get("flash-attn", config.get("fa", "auto"))).lower()
    value_cache = str(config.get("cache-type-v", config.get("ctv", "f16"))).lower()
    if flash in ("off", "0", "false") and value_cache in _QUANTISED:
        return replace(
            found,
            label="unsupported_combination",
            summary=f"the server crashed at once: a quantised V cache ({value_cache}) without flash attention",
            remedy="use --flash-attn on (or auto), or leave the V cache at f16",
            blame=Blame.CONFIG,
            confidence=0.8,
        )
    return found
