"""What vLLM makes of a request, in the order in which it builds its configuration.

Decides the effective configuration and the refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import Config, Effective, Hardware
from optimizer.engines.hardware import lacking_gpus, memory_mib
from optimizer.engines.nccl import nccl
from optimizer.engines.resolution import Resolution, start
from optimizer.engines.vllm.flags import table, take_apart
from optimizer.engines.vllm.spec_rules import overlap, speculation

JSON_FLAGS = ("speculative-config", "compilation-config")


def opened(config: Config, version: str | None) -> Resolution:
    """Read a request with its JSON flags taken apart."""
    flags = dict(config)
    problems: list[str] = []
    for name in JSON_FLAGS:
        text = flags.get(name)
        if isinstance(text, str):
            try:
                parts = take_apart(name, text)
            except ValueError as error:
                problems.append(f"{name}: {error}")
                continue
            del flags[name]
            for key, value in parts.items():
                if key in flags and flags[key] != value:
                    problems.append(f"{key} is given twice: as a flag and inside {name}")
                flags[key] = value
    state = start(flags, table(), version)
    for problem in problems:
        state.reject(problem)
    return state


def effective(
    config: Config,
    version: str | None,
    hardware: Hardware,
    model: Mapping[str, Any] | None = None,
    draft_model: Mapping[str, Any] | None = None,
) -> Effective:
    """Say which server runs; see `EngineModule.effective`."""
    state = opened(config, version)
    _batch_defaults(state, hardware, model)
    method = speculation(state, model, draft_model)
    overlap(state, method)
    _scheduler_limits(state, model)
    _memory(state)
    _graphs(state)
    _parallel(state, hardware)
    state.fill_defaults(lambda name: name.startswith("spec-") or name in GRAPH_FLAGS)
    return state.finish()


GRAPH_FLAGS = frozenset({"cudagraph-mode", "cudagraph-capture-sizes", "max-cudagraph-capture-size"})


GIB_LARGE, GIB_LARGEST = 70, 160
"""Memory in GiB from which the defaults of a batch grow (the A100 stays with the small ones)."""


def _batch_defaults(state: Resolution, hardware: Hardware, model: Mapping[str, Any] | None) -> None:
    state.fill("enable-chunked-prefill", True)
    state.fill("enable-prefix-caching", True)
    memory = memory_mib(hardware)
    if memory is None:
        return
    gib = memory / 1024
    if gib >= GIB_LARGEST:
        tokens, sequences = 16384, 1024
    elif gib >= GIB_LARGE and "a100" not in hardware.gpu_name.lower():
        tokens, sequences = 8192, 1024
    else:
        tokens, sequences = 2048, 256
    if state.text("performance-mode") == "throughput":
        tokens, sequences = tokens * 2, sequences * 2
    length = max_length(state, model)
    given = state.number("max-num-seqs")
    if "max-num-batched-tokens" not in state.values:
        if not state.on("enable-chunked-prefill") and length is not None:
            tokens = max(tokens, length)
        if length is not None:
            tokens = min(tokens, (given or sequences) * length)
        state.fill("max-num-batched-tokens", tokens)
    limit = state.number("max-num-batched-tokens")
    state.fill("max-num-seqs", min(sequences, limit) if limit is not None else sequences)


def max_length(state: Resolution, model: Mapping[str, Any] | None) -> int | None:
    """Return the longest sequence: the flag, else what the checkpoint was made for."""
    given = state.number("max-model-len")
    if given is not None and given > 0:
        return given
    if model is None:
        return None
    text = model.get("text_config")
    inner = text if isinstance(text, Mapping) else model
    length = inner.get("max_position_embeddings")
    return length if isinstance(length, int) else None


def _scheduler_limits(state: Resolution, model: Mapping[str, Any] | None) -> None:
    tokens, sequences = state.number("max-num-batched-tokens"), state.number("max-num-seqs")
    for name, value in (("max-num-batched-tokens", tokens), ("max-num-seqs", sequences)):
        if value is not None and value < 1:
            state.reject(f"{name} must be 1 or more")
    if tokens is None:
        return
    length = max_length(state, model)
    if length is not None and tokens < length and not state.on("enable-chunked-prefill"):
        state.reject(f"max-num-batched-tokens {tokens} is below the context of {length} without chunked prefill")
    if sequences is not None and tokens < sequences:
        state.reject(f"max-num-batched-tokens {tokens} is below max-num-seqs {sequences}")


def _memory(state: Resolution) -> None:
    share = state.get("gpu-memory-utilization")
    if isinstance(share, int | float) and not 0 < share <= 1:
        state.reject("gpu-memory-utilization is a share of the memory: above 0, at most 1")
    asked = state.number("max-model-len")
    if asked is not None and asked < -1:
        state.reject("max-model-len must be above 0 (-1: as much as fits)")


def _graphs(state: Resolution) -> None:
    """Eager mode captures nothing and compiles nothing."""
    if state.on("enforce-eager"):
        for name in ("cudagraph-mode", "cudagraph-capture-sizes", "max-cudagraph-capture-size"):
            state.ignore(name, "enforce-eager captures nothing")
        return
    sizes = state.text("cudagraph-capture-sizes")
    largest = state.number("max-cudagraph-capture-size")
    if sizes and largest is not None and max(int(w) for w in sizes.split()) != largest:
        state.reject("max-cudagraph-capture-size is not the largest of cudagraph-capture-sizes")


def _parallel(state: Resolution, hardware: Hardware) -> None:
    """Refuse more GPUs than there are; settings of their exchange count from two on."""
    names = ("tensor-parallel-size", "pipeline-parallel-size")
    needed = 1
    for name in names:
        value = state.number(name) or 1
        if value < 1:
            state.reject(f"{name} must be 1 or more")
        needed *= max(value, 1)
    replicas = state.number("data-parallel-size") or 1
    over_hosts = state.text("distributed-executor-backend") in {"ray", "external_launcher"}
    if not over_hosts and (state.number("nnodes") or 1) == 1:
        here = 1 if SPREAD & state.given.keys() else max(replicas, 1)
        lacking = lacking_gpus(needed * here, hardware, state.env.get("CUDA_VISIBLE_DEVICES", ""))
        if lacking:
            state.reject(lacking)
    nccl(state, needed * replicas)


SPREAD = frozenset(
    f"data-parallel-{name}"
    for name in ("address", "rank", "start-rank", "size-local", "backend", "hybrid-lb", "external-lb")
)
"""Settings of replicas that run on several hosts."""


def speculates(config: Config) -> bool:
    """Say whether the request asks for speculation."""
    state = opened(config, None)
    return any(state.text(n) is not None for n in ("spec-method", "spec-model", "speculative-config"))


def lossy(config: Config) -> tuple[str, ...]:
    """Return the settings that change outputs by design."""
    state = opened(config, None)
    found = [f"spec-rejection-sample-method={m}" for m in [state.text("spec-rejection-sample-method")] if m in LOSSY]
    kv = state.text("kv-cache-dtype")
    if kv not in {None, "auto", "float16", "bfloat16"}:
        found.append(f"kv-cache-dtype={kv}")
    if "quantization" in state.given:
        found.append(f"quantization={state.text('quantization')}")
    return tuple(found)


LOSSY = frozenset({"synthetic", "fly"})
