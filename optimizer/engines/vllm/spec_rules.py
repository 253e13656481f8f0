"""Speculative decoding in vLLM: methods, what each needs, what it switches off.

Decides on the keys of `--speculative-config` under our names for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.resolution import Resolution

NGRAM = frozenset({"ngram", "ngram_gpu"})
NEED_MODEL = frozenset({"eagle", "eagle3", "draft_model", "dflash", "medusa", "mlp_speculator"})
DRAFTED = frozenset({"eagle", "eagle3", "mtp", "draft_model", "dflash", "dspark"})
OVERLAPS = frozenset({"eagle", "eagle3", "mtp", "ngram_gpu", "draft_model", "dspark", "dflash"})
"""Methods with which the scheduler runs ahead of the GPU."""
METHOD, MODEL, TOKENS = "spec-method", "spec-model", "spec-tokens"
LOW, HIGH = "spec-prompt-lookup-min", "spec-prompt-lookup-max"
LOOKUP_DEFAULT = 5


def speculation(
    state: Resolution, model: Mapping[str, Any] | None = None, draft_model: Mapping[str, Any] | None = None
) -> str:
    """Apply the rules of the method and return it; empty without speculation."""
    method = _method(state, draft_model)
    if not method:
        for name in [n for n in state.values if n.startswith("spec-")]:
            state.reject(f"{name} without {METHOD} or {MODEL}: vLLM cannot tell what is to be drafted")
        return ""
    if method in NGRAM:
        _lookup(state)
    else:
        for name in (LOW, HIGH):
            state.ignore(name, f"{method} looks nothing up in the prompt")
    if method in NEED_MODEL and state.text(MODEL) is None:
        state.reject(f"{METHOD} {method} needs {MODEL}")
    if method in DRAFTED:
        state.fill("spec-draft-sample-method", "greedy")
    _tokens(state, method, model)
    _draft_parallel(state)
    if method == "draft_model" and model is not None and draft_model is not None:
        target, draft = _vocabulary(model), _vocabulary(draft_model)
        if target and draft and target != draft:
            state.reject(f"the draft's vocabulary has {draft} entries, the target's {target}")
    return method


def _method(state: Resolution, draft_model: Mapping[str, Any] | None) -> str:
    """The method as vLLM reads it: a telling name of the draft wins over `draft_model` and `mtp`."""
    given = state.text(METHOD)
    if given is not None and given.endswith("_mtp"):
        state.force(METHOD, "mtp", "one name for every kind of MTP layer")
        given = "mtp"
    draft = (state.text(MODEL) or "").lower()
    if given not in {None, "draft_model", "mtp"} or (given is not None and not draft):
        return given or ""
    found = _told_by_name(draft) or given
    if found is None and draft:
        kind = str(draft_model.get("model_type", "")) if draft_model is not None else ""
        found = "mtp" if kind.endswith("_mtp") else "draft_model"
    if found is None:
        return ""
    if given is not None:
        state.force(METHOD, found, "the draft's name tells its kind")
    state.fill(METHOD, found)
    return found


def _told_by_name(draft: str) -> str | None:
    if draft in {"ngram", "[ngram]"}:
        return "ngram"
    for part, method in (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark")):
        if part in draft:
            return method
    return None


def _lookup(state: Resolution) -> None:
    low, high = state.number(LOW), state.number(HIGH)
    if low is None and high is None:
        low = high = LOOKUP_DEFAULT
    low = high if low is None else low
    high = low if high is None else high
    if low is None or high is None:
        return
    for name, value in ((LOW, low), (HIGH, high)):
        state.fill(name, value)
        if value < 1:
            state.reject(f"{name} must be 1 or more")
    if low > high:
        state.reject(f"{LOW} {low} is above {HIGH} {high}")


def _tokens(state: Resolution, method: str, model: Mapping[str, Any] | None) -> None:
    tokens = state.number(TOKENS)
    if tokens is None:
        if method == "suffix":
            state.fill(TOKENS, 24)
        elif method not in {"mtp", "dspark"} or state.text(MODEL) is None:
            state.reject(f"{METHOD} {method} needs {TOKENS}")
        return
    if tokens <= 0:
        state.reject(f"{TOKENS} must be above 0")
    layers = model.get("num_nextn_predict_layers") if model is not None else None
    if method == "mtp" and isinstance(layers, int) and layers > 0 and tokens > layers and tokens % layers:
        state.reject(f"{TOKENS} {tokens} is not a multiple of the checkpoint's {layers} MTP layers")


def _draft_parallel(state: Resolution) -> None:
    given = state.number("spec-draft-tensor-parallel-size")
    parallel = state.number("tensor-parallel-size") or 1
    if given is not None and given not in (1, parallel):
        state.reject(f"spec-draft-tensor-parallel-size is 1 or tensor-parallel-size ({parallel})")


def _vocabulary(config: Mapping[str, Any]) -> int | None:
    text = config.get("text_config")
    inner = text if isinstance(text, Mapping) else config
    size = inner.get("vocab_size")
    return size if isinstance(size, int) else None


def overlap(state: Resolution, method: str) -> None:
    """Decide on asynchronous scheduling: on by default, off where the method cannot; refused when asked for there.

    With pipeline stages it is off unless it is asked for, where the first model runner is forced; the second one,
    which runs wherever there is Triton, can.
    """
    name = "async-scheduling"
    fits = not method or (method in OVERLAPS and not state.on("spec-disable-padded-drafter-batch"))
    if state.given.get(name) is True and not fits:
        state.reject(f"async-scheduling does not work with {METHOD} {method} here")
    elif name not in state.given:
        staged = (state.number("pipeline-parallel-size") or 1) > 1
        state.values[name] = fits and not (staged and state.env.get("VLLM_USE_V2_MODEL_RUNNER") == "0")
