"""Attention kernels, page size and cache type in SGLang: defaults, exclusions, forced pages.

Decides by version, GPU and model. Which kernels can carry a draft tree is decided in `spec_rules.py`.
"""

from __future__ import annotations

from optimizer.engines.sglang.request import Request

BACKENDS = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
TREE = "speculative-eagle-topk"
PAGE_WHY = "{kernel} works on pages of {sizes} tokens only"


def attention(request: Request) -> None:
    """Apply the rules in SGLang's order."""
    state = request.state
    main, prefill, decode = BACKENDS
    if request.since("0.5.3") and prefill in state.values and state.values[prefill] == state.values.get(decode):
        state.force(main, state.values[prefill], "the two phases name the same kernel")
    if main not in state.values and (default := default_backend(request)) is not None:
        state.fill(main, default)
    _slow_kernels(request)
    _pages(request)
    _hardware(request)
    _four_bit_cache(request)
    if state.text(main) == "fa3" and state.text("kv-cache-dtype") == "fp8_e5m2" and request.since("0.5.1"):
        state.force(main, "triton", "fa3 reads no fp8_e5m2 cache")
    state.fill("page-size", 1)


def default_backend(request: Request) -> str | None:
    """Return the kernel that is picked when none is given; None when it is not known or chosen later (0.4.9)."""
    state = request.state
    if request.compute is None or not request.since("0.5.2"):
        return None
    topk, page = state.number(TREE), state.number("page-size")
    chain = topk is None or (topk == 1 and page in (None, 1))
    if request.model.latent_attention:
        if request.data_centre_blackwell and request.model.architecture == "DeepseekV3ForCausalLM":
            return "trtllm_mla"
        return "fa3" if request.hopper else "flashinfer" if request.data_centre_blackwell else "triton"
    if request.hopper and chain and (request.since("0.5.8") or _old_fa3_model(request)):
        return "fa3"
    settled = not request.algorithm or topk is not None
    if request.data_centre_blackwell and chain and settled and request.since("0.5.8"):
        return "trtllm_mha"
    return "triton" if request.model.sinks else "flashinfer"


OLD_FA3 = frozenset(
    {
        "",
        "Qwen2ForCausalLM",
        "Llama4ForConditionalGeneration",
        "LlamaForCausalLM",
        "Olmo2ForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "MixtralForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Glm4MoeForCausalLM",
        "Glm4vForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "Step3VLForConditionalGeneration",
        "MiMoForCausalLM",
    }
)
"""Models for which fa3 was the default before 0.5.8."""


def _old_fa3_model(request: Request) -> bool:
    return request.model.architecture in OLD_FA3


def used(request: Request, kernel: str, *, prefill: bool = True) -> bool:
    """Say whether a kernel is named for decoding or overall, and with `prefill` for prompts too."""
    names = BACKENDS if prefill else (BACKENDS[0], BACKENDS[2])
    return any(request.state.text(name) == kernel for name in names)


def phase_backends(request: Request) -> tuple[str | None, str | None]:
    """Return the kernels of prompts and of decoding."""
    state = request.state
    main = state.text(BACKENDS[0])
    return state.text(BACKENDS[1]) or main, state.text(BACKENDS[2]) or main


def _slow_kernels(request: Request) -> None:
    state = request.state
    kernel = state.text(BACKENDS[0])
    if kernel not in {"torch_native", "flex_attention"}:
        return
    if request.split_graphs:
        state.force("disable-decode-cuda-graph", True, f"{kernel} cannot be captured")
        state.force("disable-prefill-cuda-graph", True, f"{kernel} cannot be captured")
    elif "disable-cuda-graph" in state.flags:
        state.force("disable-cuda-graph", True, f"{kernel} cannot be captured")
    if kernel == "flex_attention" and request.algorithm:
        state.reject("flex_attention does not support speculative decoding")


def _force_page(request: Request, kernel: str, allowed: tuple[int, ...], fallback: int) -> None:
    if request.state.number("page-size") not in allowed:
        sizes = " or ".join(map(str, allowed))
        request.state.force("page-size", fallback, PAGE_WHY.format(kernel=kernel, sizes=sizes))


def _pages(request: Request) -> None:
    if used(request, "flashmla", prefill=False):
        _force_page(request, "flashmla", (64,), 64)
    if used(request, "cutlass_mla", prefill=False) and not request.since("0.5.16"):
        _force_page(request, "cutlass_mla", (128,), 128)
    if not request.since("0.5.1"):
        return
    if used(request, "trtllm_mla", prefill=False):
        _force_page(request, "trtllm_mla", (32, 64), 64)
    if used(request, "cutedsl_mla"):
        _force_page(request, "cutedsl_mla", (32, 64), 64)
    if used(request, "trtllm_mha"):
        sizes = (16, 32, 64, 128) if request.since("0.5.18") else (16, 32, 64)
        _force_page(request, "trtllm_mha", sizes, 64)
    if used(request, "hpc_ops"):
        _force_page(request, "hpc_ops", (64,), 64)
    _fa4_pages(request)


def _fa4_pages(request: Request) -> None:
    state = request.state
    main, prefill, decode = BACKENDS
    if request.since("0.5.10"):
        named = used(request, "fa4") if request.since("0.5.14") else state.text(prefill) == "fa4"
        tree = request.since("0.5.18") and (state.number(TREE) or 0) > 1
        if named and request.data_centre_blackwell and not request.model.latent_attention and not tree:
            _force_page(request, "fa4", (128,), 128)
        return
    if state.text(main) == "fa4" or state.text(decode) == "fa4":
        state.reject("fa4 reads prompts only in this version: give it as prefill-attention-backend")
    elif state.text(prefill) == "fa4":
        _force_page(request, "fa4", (128,), 128)


def _hardware(request: Request) -> None:
    """Kernels that this GPU has not."""
    if request.compute is None or not request.since("0.5.1"):
        return
    state = request.state
    if used(request, "trtllm_mla", prefill=False):
        if not request.any_blackwell:
            state.reject("trtllm_mla runs on Blackwell GPUs only")
        allowed = {"fp8_e4m3", "auto", "fp4_e2m1"} | ({"bf16"} if request.since("0.5.6") else set())
        if request.since("0.5.21"):
            allowed -= {"fp4_e2m1"}
        if state.text("kv-cache-dtype") not in allowed:
            state.reject(f"trtllm_mla reads no {state.text('kv-cache-dtype')} cache")
    if used(request, "cutedsl_mla"):
        if state.text(BACKENDS[1]) == "cutedsl_mla":
            state.reject("cutedsl_mla only decodes: give another prefill-attention-backend")
        if not request.data_centre_blackwell:
            state.reject("cutedsl_mla runs on data-centre Blackwell GPUs only")
    if used(request, "trtllm_mha"):
        _trtllm_mha(request)


FOUR_BIT = frozenset({"fp4_e2m1", "nvfp4", "fp4_mx_block16"})


def _four_bit_cache(request: Request) -> None:
    """A 4-bit cache is read by few kernels, where one kernel serves both phases."""
    state = request.state
    cache = state.text("kv-cache-dtype")
    if cache == "fp4_e2m1" and request.since("0.5.18"):
        state.reject("this version parses fp4_e2m1 and fails when it lays out the cache: use fp4_mx_block16")
        return
    if cache not in FOUR_BIT or not request.since("0.5.8") or request.compute is None:
        return
    if cache == "nvfp4" and not request.any_blackwell:
        state.reject("a nvfp4 cache needs a Blackwell GPU: fp4_mx_block16 is the other 4-bit form")
    prefill, decode = phase_backends(request)
    if prefill != decode and prefill != "fa4":
        return
    latent = request.model.latent_attention
    able = {"flashinfer", "trtllm_mla"} if latent else {"triton", "torch_native", "flex_attention"}
    if latent and not request.since("0.5.19"):
        able.add("cutlass_mla")
    if prefill != "fa4":
        able |= {"trtllm_mha"} if not latent else {"flashmla"} if not request.since("0.5.18") else set()
    if decode not in able:
        state.reject(f"{decode} reads no {cache} cache: {', '.join(sorted(able))} do")


def _trtllm_mha(request: Request) -> None:
    state = request.state
    prefill, decode = phase_backends(request)
    wide = request.hopper or request.any_blackwell
    if not request.since("0.5.8"):
        if not request.data_centre_blackwell:
            state.reject("trtllm_mha runs on data-centre Blackwell GPUs only")
        return
    prompts = wide if request.since("0.5.18") else request.data_centre_blackwell
    if prefill == "trtllm_mha" and not prompts:
        state.reject("trtllm_mha cannot read prompts on this GPU: give another prefill-attention-backend")
    if decode == "trtllm_mha" and not wide:
        state.reject("trtllm_mha decodes on Hopper and Blackwell GPUs only")
