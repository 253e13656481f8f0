"""Kernels of mixture-of-experts layers in SGLang: which quantisation each can read.

Decides refusals only. `quantization` is the flag; without it a checkpoint's own format is taken, which these checks
do not see.
"""

from __future__ import annotations

from optimizer.engines.sglang.request import Request

FP4 = frozenset({"modelopt_fp4"})
PLAIN = frozenset({"", "modelopt_fp4", "modelopt_fp8"})
WIDE = frozenset({*PLAIN, "fp8", "mxfp8", "modelopt_mixed", "compressed-tensors"})


def readable(request: Request, runner: str) -> frozenset[str] | None:
    """Return the quantisations that a runner takes (empty text: none given), None when it takes all."""
    if runner == "flashinfer_cutlass":
        if not request.since("0.5.6"):
            return FP4
        return PLAIN | {"modelopt_mixed"} if request.since("0.5.10") else PLAIN
    if runner in {"flashinfer_trtllm", "experimental_sgl_trtllm"}:
        if not request.since("0.5.6"):
            return FP4 | {"fp8"} | ({"modelopt_fp8"} if request.since("0.5.5") else set())
        return WIDE | {"nvfp4_online"} if request.since("0.5.20") else WIDE
    if runner == "flashinfer_trtllm_routed":
        newer = {"modelopt_fp4"} if request.since("0.5.12") else set()
        return frozenset({"", "fp8", "mxfp8"}) | newer | _latest(request)
    if runner == "flashinfer_cutedsl":
        return FP4 | ({"modelopt_mixed", "nvfp4_online"} if request.since("0.5.20") else set())
    return None


def _latest(request: Request) -> frozenset[str]:
    names = {"modelopt_mixed", "nvfp4_online", "minimax_m3_nvfp4"}
    return frozenset(names if request.since("0.5.20") else set())


def experts(request: Request) -> None:
    """Refuse runners that cannot read the quantisation, or the way experts are spread."""
    state = request.state
    if "moe-runner-backend" not in state.flags:
        return
    runner = state.text("moe-runner-backend") or "auto"
    quantisation = state.text("quantization") or ""
    allowed = readable(request, runner)
    if allowed is not None and quantisation not in allowed:
        given = quantisation or "none given"
        names = ", ".join(sorted(n for n in allowed if n))
        state.reject(f"moe-runner-backend {runner} needs quantization {names}; {given}")
    parallel, experts_over = state.number("tp-size") or 1, state.number("ep-size") or 1
    if runner in {"flashinfer_cutlass", "flashinfer_cutedsl"} and experts_over not in (1, parallel):
        state.reject(f"moe-runner-backend {runner} needs ep-size 1 or tp-size")
    if runner == "cutlass" and quantisation in {"fp8", "mxfp8"} and experts_over != 1:
        state.reject("moe-runner-backend cutlass needs ep-size 1")
    if runner == "triton_kernel" and experts_over != 1 and request.model.architecture == "GptOssForCausalLM":
        state.reject("moe-runner-backend triton_kernel needs ep-size 1")
