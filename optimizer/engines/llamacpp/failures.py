"""llama.cpp's own failures, the stages of its log, and the names of its settings.

Decides which texts of llama-server name which cause; leaves texts of the system and of CUDA to the catalogue and the
choice to `explain`. A server that dies without a word (a segmentation fault) is told from its exit code and settings.
"""

from __future__ import annotations

from dataclasses import replace

from optimizer.engines import catalogue, silent
from optimizer.engines.base import Blame, Config, Explanation, FailureContext
from optimizer.engines.causes import BY_STAGE, Catalogue, Stage, Tier, cause, marks
from optimizer.engines.explain import explain as explain_with

C, D, G, S = Tier.CAUSE, Tier.DECISIVE, Tier.GENERAL, Tier.SYMPTOM

CAUSES = (
    cause(
        "invalid_flag",
        D,
        r"error while handling argument \"(?P<what>[^\"]{1,60})\": the argument has been removed\.?(?P"
        r"<instead>.{0,120})",
        summary="the flag {what} has been removed",
        remedy="{instead}; compare with --help of the installed build",
    ),
    cause(
        "invalid_flag",
        D,
        r"error while handling argument \"(?P<what>[^\"]{1,60})\": ?(?P<why>.{0,120})",
        r"error while handling environment variable \"(?P<what>[^\"]{1,60})\": ?(?P<why>.{0,120})",
        summary="the flag {what} has a value that the server refuses: {why}",
        remedy="use a value that --help of the installed build lists",
    ),
    cause(
        "invalid_flag",
        D,
        r"^error: (?:invalid|unknown) argument:? ?(?P<what>\S{0,80})",
        r"error: unknown (?:option|argument) (?P<other>\S{0,80})",
        r"error: invalid parameter for argument:? ?(?P<what>\S{0,80})",
        summary="the server does not know the flag {what}",
        remedy="compare with --help of the installed build: flags are renamed often",
    ),
    cause(
        "environment_broken",
        D,
        r"invalid value for main_gpu: .{0,20}\(available devices: 0\)",
        summary="a GPU is asked for, and the server sees none",
        remedy="check nvidia-smi, CUDA_VISIBLE_DEVICES, and that this build has the GPU's backend",
    ),
    cause(
        "invalid_flag",
        C,
        r"^error: (?!.{0,40}\b(?:model|gguf|file|load)\b).{0,80}\b(?:unknown|invalid|unrecognized|unsupported)\b",
        r"invalid value for main_gpu",
        summary="the server refuses a value that it was given",
        remedy="compare with --help of the installed build",
        stages=(Stage.UNKNOWN, Stage.ARGUMENTS, Stage.INIT, Stage.WEIGHTS),
    ),
    cause(
        "unsupported_combination",
        D,
        r"v cache quantization requires flash_attn|quantized v cache (?:was requested|requires)",
        summary="a quantised V cache needs flash attention",
        remedy="use -fa on (or auto) with -ctv, or leave the V cache at f16",
    ),
    cause(
        "unsupported_combination",
        D,
        r"requires flash_attn to be enabled|flash_attn (?:is not|not) (?:compatible|supported)",
        r"flash attention .{0,40}(?:not supported|requires)",
        r"n_ubatch|n_batch.{0,60}(?:must|cannot both be zero|too)|split_mode\w* .{0,60}(?:requires|not supported)",
        r"context shift.{0,40}not supported",
        r"error loading model: .{0,60}\bdoes not support\b",
        r"does not support .{0,40}(?:embedding|rerank|shift|parallel|speculat)",
        r"is not supported by (?:this|the) (?:model|context|backend)",
        r"unsupported (?:k|v)-type|unsupported op\b|unsupported type|k cache type .{0,60}with block size",
        r"v cache type .{0,60}with block size",
        r"--?[\w-]+ .{0,40}(?:requires|is incompatible with|cannot be used with"
        r"|conflicts with) .{0,10}--?[\w-]+",
        r"(?:cannot|can not|can't) be used together",
        summary="llama-server refuses this combination of settings",
        unless=r"disabling|overriding|ignor|falling back|this warning is normal",
    ),
    cause(
        "draft_mismatch",
        D,
        r"draft (?:model )?vocab .{0,60}(?:must|does not) match",
        r"target vocab size .{0,40}does not match draft|vocab.{0,40}not compatible with .{0,20}draft",
        r"draft.{0,40}vocab.{0,40}(?:not compatible|differ|mismatch)",
        r"(?:bos|eos|special) tokens? .{0,40}(?:must match|do not match|differ).{0,60}(?:draft|target)",
        r"the target and draft .{0,60}(?:not compatible|differ)",
        r"(?:eagle3|dflash|mtp|dspark).{0,60}(?:requires|mismatch|not compatible|does not match|must)",
        summary="the draft model does not fit the target",
        remedy="use a draft of the same family and vocabulary",
        unless=r"will be translated|translating",
    ),
    cause(
        "model_not_found",
        D,
        r"failed to open gguf file|invalid magic characters|failed to load draft model",
        near=r"failed to load draft model",
        stop=False,
        summary="the draft model's file cannot be opened or is no GGUF file",
        remedy="correct the path given as {draft}",
    ),
    cause(
        "model_not_found",
        D,
        r"failed to open gguf file '(?P<what>[^']{1,200})'",
        summary="the file {what} cannot be opened",
        remedy="correct the path where it was given (--model, --model-draft, --lora, --mmproj)",
    ),
    cause(
        "model_not_found",
        D,
        r"failed to open (?P<other>\S{0,200}\.gguf)",
        r"(?P<any>\S+): failed to open .{0,200}no such file|error: failed to open file",
        r"corrupted or incomplete|not within (?:the )?file bounds|unexpectedly reached end of file",
        r"invalid magic characters|failed to read magic|bad magic",
        r"failed to load model from (?:file|disk)|gguf_init_from_\w+: failed to read",
        r"failed to get manifest|model is private or does not exist",
        r"failed to download|download(?:ing)? .{0,100}failed|no gguf files? found",
        r"docker model download failed|repo .{0,80}not found|required file is not available in cache",
        summary="the model file cannot be opened or is no GGUF file",
        remedy="correct the path given with -m or -md; check that the file was downloaded whole",
        unless=r"unknown model architecture|missing tensor|wrong shape",
    ),
    cause(
        "unsupported_model",
        D,
        r"unknown model architecture|unknown pre-tokenizer|missing tensor|wrong number of tensors",
        r"wrong shape|invalid ggml type|unsupported gguf version|key not found in model",
        r"done_getting_tensors|unsupported model|unsupported file",
        r"model .{0,40}(?:does not contain|has no) (?:mtp|nextn|vocab)|failed to create mtp context",
        r"cannot (?:find|load) tokenizer",
        summary="this build cannot load the model",
        remedy="use a newer build of llama.cpp, or convert the model again",
    ),
    cause(
        "port_in_use",
        D,
        r"couldn't bind http server socket, hostname: (?:127\.0\.0\.1|0\.0\.0\.0|localhost|::1?"
        r"|\[::1?\]), port: (?P<port>\d+)",
        summary="port {port} is taken",
        remedy="wait until the old server is gone, or use another --port",
    ),
    cause(
        "port_in_use",
        C,
        r"couldn't bind (?:http )?(?:server )?(?:socket|to server)(?P<port>.{0,100})",
        r"failed to (?:bind|listen)|error: .{0,40}bind.{0,40}(?:address|socket|port)",
        summary="the server cannot bind its address: the port is taken or the address is not one of this host",
        remedy="wait until the old server is gone, use another --port, and check --host",
        confidence=0.7,
    ),
    cause(
        "oom_kv_cache",
        D,
        r"failed to allocate (?:buffer for )?kv",
        r"kv cache.{0,40}(?:failed to allocate|allocation failed)|llama_kv_cache.{0,60}failed",
        r"failed to allocate kv|init_memory: .{0,40}fail|failed to initialize (?:the )?(?:kv|memory)",
        r"failed to allocate (?:compute|output|graph|worst-case)|failed to allocate \w+ pp buffers",
        r"failed to reserve (?:graph|compute)|compute buffer allocation failed(?!, retrying)",
        r"failed to allocate compute buffers",
        summary="the model was loaded, but its context and compute buffers do not fit",
        remedy="lower {ctx} or {chunk}, use {kvdtype}, or fewer -ngl layers",
    ),
    cause(
        "oom_kv_cache",
        C,
        r"gallocr_reserve_n\w*: failed to allocate",
        r"failed to find (?:a memory slot|\d+ available cells|available cells)",
        r"context size has been exceeded|kv cache is full",
        summary="context and compute buffers do not fit",
        remedy="lower {ctx} or {chunk}, use {kvdtype}, or fewer -ngl layers",
        unless=r"unable to allocate \w+ buffer",
        stages=(Stage.UNKNOWN, Stage.ARGUMENTS, Stage.INIT, Stage.WEIGHTS, Stage.KV_CACHE),
    ),
    cause(
        "oom_runtime",
        G,
        r"kv cache is full|context size has been exceeded|failed to find \d+ available cells",
        summary="the context of the server ran out while serving",
        remedy="raise {ctx}, or lower {seqs}",
        stages=(Stage.READY, Stage.SERVING),
    ),
    cause(
        "oom_weights",
        D,
        r"unable to allocate (?!cpu|host)\w+ buffer",
        r"error loading model: (?!.{0,60}(?:cpu|host|mmap|mlock)).{0,60}(?:allocate|out of memory)",
        r"alloc_tensor_range: failed to allocate (?!cpu)|failed to fit params to free device memory",
        r"cannot meet free memory target",
        summary="the weights do not fit into GPU memory",
        remedy="fewer -ngl layers, a smaller quantisation, or more GPUs",
        unless=r"failed to allocate (?:compute|buffer for kv)",
    ),
    cause(
        BY_STAGE,
        C,
        r"cudamalloc failed: out of memory|hipmalloc failed",
        r"allocating [\d.]+ mib on device \d+: .{0,40}(?:fail|out of memory)|erroroutofdevicememory",
        r"ggml_vulkan: device memory allocation",
        r"failed to allocate \w*(?:cuda|rocm|vulkan|metal|sycl|hip)\w* buffer",
        r"ggml_metal.{0,60}(?:failed to allocate|insufficient memory)",
        r"kiogpucommandbuffercallbackerroroutofmemory",
    ),
    cause(
        "kernel_arch_unsupported",
        C,
        r"ggml was not compiled with (?:any|support)|was not compiled (?:with|for)",
        r"not compiled with .{0,20}(?:cuda|gpu)|no device (?:code|kernel)",
        r"kernel .{0,60}has no device code|mul_mat.{0,40}not supported|no usable gpu found",
        unless=r"warning|--gpu-layers option will be ignored",
    ),
    cause(
        "driver_cuda_mismatch",
        D,
        r"ggml_cuda_init: failed to initialize|incompatible api version|failed to load backend",
        r"ggml_backend_load.{0,40}fail",
        summary="the CUDA backend cannot start on this driver; the server falls back to the CPU",
        remedy="use a build made for this driver's CUDA",
        unless=r"no cuda-capable device|no device found",
    ),
    cause(
        "spec_inactive",
        C,
        r"failed to initialize speculative|speculative decoding (?:is )?(?:not supported|disabled)",
        r"speculative .{0,60}but the server was not started with",
        r"no implementations? specified for speculative|draft model is not compatible, disabling",
        summary="speculation could not be set up, and the server runs without it",
        remedy="check -md and --spec-type against the installed build",
    ),
    cause(
        "scheduler_crash",
        G,
        r"ggml_assert|ggml_abort|cuda error:|cuda error \d+|ggml_cuda_error|terminate called after",
        r"libc\+\+abi: terminating",
        fatal=True,
        summary="llama-server aborted inside its engine",
        remedy="drop the setting that was changed (cache types, -fa, -ub, draft), or use another build",
        unless=r"illegal memory|out of memory|no kernel image",
    ),
    cause(
        "scheduler_crash",
        G,
        r"ggml_backend_sched_graph_compute\w* failed|failed to decode|decode: failed|compute error",
        summary="llama-server could not compute a batch",
        remedy="drop the setting that was changed (cache types, -fa, -ub, draft), or use another build",
        unless=r"illegal memory|out of memory|no kernel image",
    ),
    cause(
        "model_not_found",
        G,
        r"failed to load (?:draft )?model|exiting due to model loading error|unable to load model",
        summary="the model could not be loaded",
    ),
    cause(
        "unsupported_combination",
        G,
        r"failed to create context|failed to initialize the context",
        summary="the context could not be created with these settings",
        remedy="compare cache types, -fa, -c and -ub with what the model supports",
        confidence=0.5,
    ),
    cause("scheduler_crash", S, r"exiting due to|panic: |llama runner process has terminated|exit status \d+"),
    cause("unknown", S, r"^[\d.]+ e (?P<text>.{0,160})", summary="llama-server reported: {text}", confidence=0.3),
)

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
