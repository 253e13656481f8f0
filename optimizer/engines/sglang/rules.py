"""What SGLang makes of a request, in the order in which it resolves its arguments.

Decides the effective configuration and the refusals by joining the rule modules of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import Config, Effective, Hardware
from optimizer.engines.nccl import nccl
from optimizer.engines.resolution import Resolution, start
from optimizer.engines.sglang.attention import attention
from optimizer.engines.sglang.capacity import capacity, graph_flag
from optimizer.engines.sglang.checks import final_checks
from optimizer.engines.sglang.experts import experts
from optimizer.engines.sglang.flags import table
from optimizer.engines.sglang.request import Request
from optimizer.engines.sglang.spec_rules import speculation


def effective(
    config: Config,
    version: str | None,
    hardware: Hardware,
    model: Mapping[str, Any] | None = None,
    draft_model: Mapping[str, Any] | None = None,
) -> Effective:
    """Say which server runs; see `EngineModule.effective`."""
    state = start(config, table(), version)
    request = Request.read(state, hardware, model)
    _unread(state)
    _deprecated(request)
    capacity(request)
    attention(request)
    _fused_sums(request)
    state.fill("sampling-backend", "flashinfer")
    experts(request)
    speculation(request)
    final_checks(request)
    _graphs(request)
    nccl(state, _gpus(request))
    state.fill_defaults(lambda name: _idle(request, name))
    return state.finish()


def _gpus(request: Request) -> int:
    sizes = [request.state.number(name) or 1 for name in ("tp-size", "pp-size", "dp-size")]
    return sizes[0] * sizes[1] * sizes[2]


def _idle(request: Request, name: str) -> bool:
    if name.startswith("speculative-ngram-"):
        return request.algorithm != "NGRAM"
    if name.startswith("speculative-"):
        return not request.algorithm
    return name == "torch-compile-max-bs" and not request.state.on("enable-torch-compile")


def _deprecated(request: Request) -> None:
    state = request.state
    if request.since("0.5.14") and state.on("enable-flashinfer-allreduce-fusion"):
        state.force("enable-flashinfer-allreduce-fusion", None, "an old name of flashinfer-allreduce-fusion-backend")
        state.fill("flashinfer-allreduce-fusion-backend", "auto")


FUSING = (
    "Deepseek",
    "GptOss",
    "GlmMoeDsa",
    "Glm4Moe",
    "MistralLarge3",
    "Qwen3MoeForCausalLM",
    "Qwen3VLMoe",
    "Qwen3Next",
    "KimiK25",
    "Qwen3_5",
    "NemotronH",
)
"""Architectures that fuse sums with FlashInfer by themselves."""


def _fused_sums(request: Request) -> None:
    """Since 0.5.14 some models switch fused sums on when several GPUs share them."""
    state = request.state
    name = "flashinfer-allreduce-fusion-backend"
    if name not in state.flags or not request.model.architecture.startswith(FUSING):
        return
    parallel, nodes = state.number("tp-size") or 1, state.number("nnodes") or 1
    fits = (request.hopper and nodes == 1) or request.data_centre_blackwell
    alone = state.text("moe-a2a-backend") in (None, "none") and not state.on("enable-dp-attention")
    if fits and parallel > 1 and alone:
        state.fill(name, "auto")
    if state.on("enforce-disable-flashinfer-allreduce-fusion"):
        state.values.pop(name, None)


def _graphs(request: Request) -> None:
    """Write the graph flags in one way: both phases off is one flag per phase; idle sizes go."""
    state = request.state
    if request.split_graphs:
        for phase in ("decode", "prefill"):
            backend = state.text(f"cuda-graph-backend-{phase}")
            off = state.on("disable-cuda-graph") or state.on(f"disable-{phase}-cuda-graph")
            if backend == "disabled" or (off and backend is None):
                state.values[f"disable-{phase}-cuda-graph"] = True
                state.values.pop(f"cuda-graph-backend-{phase}", None)
        state.values.pop("disable-cuda-graph", None)
        decode_off = state.on("disable-decode-cuda-graph")
    else:
        decode_off = state.on("disable-cuda-graph")
    if decode_off:
        for name in (graph_flag(request), "disable-cuda-graph-padding"):
            state.ignore(name, "nothing is captured for decoding")
    if not state.on("enable-torch-compile"):
        state.ignore("torch-compile-max-bs", "nothing is compiled without enable-torch-compile")


def _unread(state: Resolution) -> None:
    for name in list(state.values):
        reason = state.flags[name].no_effect if name in state.flags else ""
        if reason:
            state.ignore(name, reason)


def speculates(config: Config) -> bool:
    """Say whether the request asks for speculation."""
    return start(config, table(), None).text("speculative-algorithm") is not None


def lossy(config: Config) -> tuple[str, ...]:
    """Return the settings that change outputs by design."""
    state = start(config, table(), None)
    found = []
    for name in ("speculative-accept-threshold-single", "speculative-accept-threshold-acc"):
        value = state.get(name)
        if isinstance(value, int | float) and value < 1.0:
            found.append(f"{name}={value}")
    kv = state.text("kv-cache-dtype")
    if kv not in {None, "auto", "bf16", "bfloat16"}:
        found.append(f"kv-cache-dtype={kv}")
    if "quantization" in state.given:
        found.append(f"quantization={state.text('quantization')}")
    return tuple(found)
