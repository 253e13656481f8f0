"""SGLang's last checks, after everything is resolved.

Decides only refusals of combinations that no earlier rule touches.
"""

from __future__ import annotations

import math

from optimizer.engines.hardware import lacking_gpus
from optimizer.engines.sglang.request import Request

FOREIGN_TO_FP8 = frozenset({"modelopt_fp4", "awq", "gptq", "awq_marlin", "gptq_marlin", "bitsandbytes", "mxfp4"})


def final_checks(request: Request) -> None:
    """Refuse what the server refuses at the end of reading its arguments."""
    state = request.state
    chunk, page = state.number("chunked-prefill-size"), state.number("page-size") or 1
    if chunk is not None and (chunk > 0 or not request.since("0.5.1")) and chunk % page:
        state.reject(f"chunked-prefill-size {chunk} is not a multiple of page-size {page}")
    if request.since("0.5.12") and state.on("disable-cuda-graph-padding") and state.on("enable-torch-compile"):
        state.reject("disable-cuda-graph-padding with enable-torch-compile would compile every batch size on its own")
    conservativeness = state.get("schedule-conservativeness")
    if isinstance(conservativeness, int | float) and conservativeness < 0 and request.since("0.5.3"):
        state.reject("schedule-conservativeness must not be negative")
    name = state.text("served-model-name") or ""
    if ":" in name and request.since("0.5.1"):
        state.reject("served-model-name must not contain a colon: it stands for an adapter")
    method = state.text("quantization")
    judged = (request.since("0.5.1") or method == "modelopt_fp4") and not request.since("0.5.16")
    if request.model.quantisation == "fp8" and method in FOREIGN_TO_FP8 and judged:
        state.reject(f"quantization {method}: the checkpoint is fp8")
    _parallel(request)
    _gpus(request)
    policy = state.text("schedule-policy")
    if state.on("enable-priority-scheduling") and policy not in {"fcfs", "lof"}:
        state.reject(f"enable-priority-scheduling works with schedule-policy fcfs or lof, not {policy}")


def _gpus(request: Request) -> None:
    """More GPUs than one host has are found out only when the workers have started."""
    state = request.state
    if (state.number("nnodes") or 1) > 1 or state.on("use-ray") or state.text("device") not in {None, "cuda"}:
        return
    names = ("tp-size", "pp-size", *(() if state.on("enable-dp-attention") else ("dp-size",)))
    needed = math.prod(state.number(name) or 1 for name in names)
    last = (state.number("base-gpu-id") or 0) + (needed - 1) * (state.number("gpu-id-step") or 1)
    lacking = lacking_gpus(last + 1, request.hardware, state.env.get("CUDA_VISIBLE_DEVICES", ""))
    if lacking:
        state.reject(lacking)


def _parallel(request: Request) -> None:
    state = request.state
    tp, pp, nodes = (state.number(n) or 1 for n in ("tp-size", "pp-size", "nnodes"))
    if tp * pp % nodes:
        state.reject(f"tp-size times pp-size ({tp * pp}) is not a multiple of nnodes ({nodes})")
    if pp > 1:
        state.force("disable-overlap-schedule", True, "pipeline parallelism cannot overlap the scheduler")
        if request.algorithm:
            state.reject("speculation does not work with pipeline parallelism")
    dense = state.number("moe-dense-tp-size") if "moe-dense-tp-size" in state.flags else None
    if dense not in (None, 1, tp):
        state.reject("moe-dense-tp-size is 1 or tp-size")
    if state.on("enable-dp-attention") and not request.since("0.5.23"):
        replicas = state.number("dp-size") or 1
        if tp % replicas:
            state.reject(f"tp-size {tp} is not a multiple of dp-size {replicas}")
