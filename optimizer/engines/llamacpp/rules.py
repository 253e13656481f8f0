"""What llama-server makes of a request: speculation, batches, caches, slots, threads.

Decides the effective configuration and the refusals, as seen in the server's source and on the running server.
Spellings and types are read before (`resolution.start`); presets are in `presets.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import Config, Effective, Hardware
from optimizer.engines.llamacpp.flags import table
from optimizer.engines.resolution import Resolution, start

SPEC_TYPES = (
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
)
NEED_DRAFT_MODEL = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark")
OWN_PREFIX = {
    "ngram-simple": "spec-ngram-simple-",
    "ngram-map-k": "spec-ngram-map-k-",
    "ngram-map-k4v": "spec-ngram-map-k4v-",
    "ngram-mod": "spec-ngram-mod-",
}
DRAFT_FLAGS = (
    "model-draft",
    "hf-repo-draft",
    "threads-draft",
    "threads-batch-draft",
    "cache-type-k-draft",
    "cache-type-v-draft",
    "gpu-layers-draft",
    "device-draft",
    "cpu-moe-draft",
    "n-cpu-moe-draft",
    "override-tensor-draft",
    "cpu-mask-draft",
    "cpu-range-draft",
)
QUANTISED = frozenset({"q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"})
FULL_PRECISION = frozenset({"f32", "f16", "bf16"})
AUTO_SLOTS = 4
"""Slots that `--parallel -1` gives, with one KV buffer for all (seen on build 10068)."""
MOST_THREADS = 2
"""Threads for each processor beyond which a start is not worth its time: they spin while they wait for each other."""
CONTEXT_PAD = 256
"""The context is rounded up to a multiple of this."""


def effective(
    config: Config,
    version: str | None,
    hardware: Hardware,
    model: Mapping[str, Any] | None = None,
    draft_model: Mapping[str, Any] | None = None,
) -> Effective:
    """Say which server runs; see `EngineModule.effective`. No rule reads the models: a GGUF has no `config.json`."""
    state = start(config, table(), version)
    _unread(state)
    _speculation(state)
    _slots_and_context(state)
    _batches(state)
    _attention_and_cache(state, hardware)
    _threads(state, hardware.cpu_count)
    _prompt_cache(state)
    if "fit" in state.flags:
        state.fill("fit", "off")
    state.fill_defaults(lambda name: name.startswith("spec-") or name in DRAFT_FLAGS)
    return state.finish()


def _unread(state: Resolution) -> None:
    for name in list(state.values):
        if state.flags[name].no_effect:
            state.ignore(name, state.flags[name].no_effect)


def spec_types(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the kinds of speculation in a comma list, in the server's own order, and the unknown words."""
    words = [w.strip() for w in text.split(",") if w.strip()]
    unknown = tuple(w for w in words if w != "none" and w not in SPEC_TYPES)
    return tuple(t for t in SPEC_TYPES if t in words), unknown


def _speculation(state: Resolution) -> None:
    if state.on("spec-default"):
        _default_speculation(state)
    kinds, unknown = spec_types(state.text("spec-type") or "none")
    for word in unknown:
        state.reject(f"spec-type: {word!r} is not one of none, {', '.join(SPEC_TYPES)}")
    state.values["spec-type"] = ",".join(kinds) or "none"
    drafting = [k for k in kinds if k.startswith("draft-")]
    for kind in drafting:
        if kind in NEED_DRAFT_MODEL and not state.text("model-draft") and not state.text("hf-repo-draft"):
            state.reject(f"spec-type {kind} drafts with a second model: give model-draft (the server crashes without)")
    _drop_foreign_sizes(state, kinds)
    if drafting:
        _drafting(state)
    else:
        _drop_draft_flags(state)
    for kind in kinds:
        for name in _own_flags(state, kind):
            default = state.flags[name].default
            if default is not None:
                state.fill(name, default)


def _default_speculation(state: Resolution) -> None:
    """`--spec-default` adds ngram-mod with its own sizes, over whatever stood before it."""
    kinds, _ = spec_types(state.text("spec-type") or "none")
    state.values["spec-type"] = ",".join((*kinds, "ngram-mod"))
    for name, value in (("n-match", 24), ("n-min", 48), ("n-max", 64)):
        state.force(f"spec-ngram-mod-{name}", value, "spec-default sets the sizes of ngram-mod itself")
    state.values.pop("spec-default")


def _own_flags(state: Resolution, kind: str) -> list[str]:
    prefix = OWN_PREFIX.get(kind)
    if prefix is None:
        return []
    return [f.name for f in state.flags.flags if f.name.startswith(prefix) and not f.no_effect]


def _drop_foreign_sizes(state: Resolution, kinds: tuple[str, ...]) -> None:
    for kind in OWN_PREFIX:
        if kind in kinds:
            continue
        for name in _own_flags(state, kind):
            if name in state.values:
                state.ignore(name, f"only spec-type {kind} reads it")


def _drop_draft_flags(state: Resolution) -> None:
    names = [n for n in state.values if n.startswith("spec-draft-") or n in DRAFT_FLAGS]
    for name in names:
        state.ignore(
            name, "without a draft-... spec-type nothing is drafted by a model: speculation stays silently off"
        )


def _drafting(state: Resolution) -> None:
    for name in ("spec-draft-n-max", "spec-draft-n-min", "spec-draft-p-min"):
        default = state.flags[name].default
        if default is not None:
            state.fill(name, default)
    for name in ("cache-type-k-draft", "cache-type-v-draft"):
        state.fill(name, "f16")
    _same_as(state, "threads-draft", state.number("threads"))
    _same_as(state, "threads-batch-draft", state.number("threads-draft"))


def _same_as(state: Resolution, name: str, other: int | None) -> None:
    """A draft thread count that is left out, or not above zero, is that of the target."""
    value = state.number(name)
    if value is None or value <= 0:
        state.values[name] = other if other is not None and other > 0 else -1


def _slots_and_context(state: Resolution) -> None:
    parallel = state.number("parallel")
    if parallel == 0:
        state.reject("parallel: 0 slots serve nobody; give 1 or more, or -1 for the automatic choice")
    elif parallel is None or parallel < 0:
        state.values["parallel"] = AUTO_SLOTS
        state.fill("kv-unified", True)
    state.fill("kv-unified", False)
    if state.number("parallel") == 1:
        state.values["kv-unified"] = False
    context = state.number("ctx-size") or 0
    if context > 0 and context % CONTEXT_PAD:
        padded = -(-context // CONTEXT_PAD) * CONTEXT_PAD
        state.force("ctx-size", padded, f"the context is rounded up to a multiple of {CONTEXT_PAD}")
    state.fill("ctx-size", 0)


def _batches(state: Resolution) -> None:
    context = state.number("ctx-size") or 0
    batch = state.number("batch-size")
    if batch == 0:
        state.reject("batch-size: 0 ends in a failed assertion at start; give 1 or more")
        return
    if batch is not None and context > 0 and (batch > context or batch < 0):
        state.force("batch-size", context, "a batch cannot be larger than the context")
    state.fill("batch-size", 2048 if context <= 0 else min(2048, context))
    batch, ubatch = state.number("batch-size"), state.number("ubatch-size")
    if batch is not None and ubatch is not None and (ubatch <= 0 or ubatch > batch):
        state.force("ubatch-size", batch, "a physical batch cannot be larger than the logical one")
    state.fill("ubatch-size", min(512, batch) if batch is not None and batch > 0 else 512)


def _attention_and_cache(state: Resolution, hardware: Hardware) -> None:
    state.fill("flash-attn", "auto")
    state.fill("cache-type-k", "f16")
    state.fill("cache-type-v", "f16")
    quantised = [n for n in ("cache-type-v", "cache-type-v-draft") if state.text(n) in QUANTISED]
    if state.text("flash-attn") == "off" and quantised:
        state.reject(
            f"{quantised[0]} {state.text(quantised[0])} needs flash attention: a quantised V cache cannot be made with "
            "flash-attn off, and the server dies at start"
        )
    cpu_only = hardware.cpu_count > 0 and hardware.gpu_count == 0
    if state.text("flash-attn") == "auto" and (quantised or cpu_only):
        state.values["flash-attn"] = "on"


def _threads(state: Resolution, processors: int) -> None:
    for name in ("threads", "threads-batch"):
        if processors and (state.number(name) or 0) > processors * MOST_THREADS:
            state.reject(f"{name} {state.number(name)}: on {processors} processors most of them would only wait")
    threads = state.number("threads")
    state.values["threads"] = threads if threads is not None and threads > 0 else -1
    batch = state.number("threads-batch")
    if batch is None or batch <= 0:
        state.values["threads-batch"] = state.values["threads"]


def _prompt_cache(state: Resolution) -> None:
    if state.get("cache-prompt") is False and "cache-reuse" in state.values:
        state.ignore("cache-reuse", "prompts are not cached with no-cache-prompt")
    if state.number("cache-ram") == 0 and "cache-idle-slots" in state.values:
        state.ignore("cache-idle-slots", "there is no prompt cache with cache-ram 0")


def lossy(config: Config) -> tuple[str, ...]:
    """Return the settings that change outputs by design."""
    state = start(config, table(), None)
    found = [n for n in ("cache-type-k", "cache-type-v") if state.text(n) not in {None, *FULL_PRECISION}]
    found += [n for n in ("spec-synth-len", "spec-synth-rates") if n in config]
    return tuple(f"{n}={state.text(n) or config.get(n)}" for n in found)


def speculates(config: Config) -> bool:
    """Say whether the request asks for speculation."""
    state = start(config, table(), None)
    return state.on("spec-default") or bool(spec_types(state.text("spec-type") or "none")[0])
