"""Whether a drafter can fit its target, from their two `config.json` and the launch flags, before anything is started.

Decides only what the two files can tell: sizes, vocabularies, kind of head. That a drafter fits does not make it good.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import Config

ModelConfig = Mapping[str, Any]
METHOD_FLAGS = ("speculative-algorithm", "spec-method")
DRAFT_FLAGS = ("speculative-draft-model-path", "speculative-draft-model", "spec-model")
TP_FLAGS = ("tp-size", "tensor-parallel-size", "tp")
CONTEXT_FLAGS = ("context-length", "max-model-len")
WHOLE_MODEL = frozenset({"standalone", "draft_model"})
EAGLE = frozenset({"eagle", "nextn", "mtp"})
PLAIN = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "GptOssForCausalLM",
        "Phi3ForCausalLM",
        "Gemma2ForCausalLM",
    }
)
"""Architectures that never carry draft layers; of others, a missing key proves nothing."""
MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "n_predict")


def draft_fit(target: ModelConfig | None, draft: ModelConfig | None, config: Config) -> list[str]:
    """Return why this drafter cannot work with this target, in our words; empty when nothing speaks against it.

    Either file may be missing (None): then only the other one and the flags are judged.
    """
    method = _first(config, METHOD_FLAGS).lower()
    if not method or method.startswith("ngram") or method == "suffix":
        return []
    has_path = bool(_first(config, DRAFT_FLAGS))
    if not has_path and draft is None:
        return _without_draft(method, target)
    if draft is None:
        return []
    problems = _kind(method, draft)
    if target is not None:
        problems += _vocabulary(method, _inner(target), _inner(draft))
        problems += _width(method, _inner(target), _inner(draft))
    return problems + _shards(config, _inner(draft))


def draft_warnings(draft: ModelConfig | None, config: Config) -> list[str]:
    """Return what may go wrong with sequences as long as the flags allow."""
    if draft is None:
        return []
    made_for = _number(_inner(draft), "max_position_embeddings")
    asked = _whole(_first(config, CONTEXT_FLAGS))
    if made_for is None or asked is None or asked <= made_for:
        return []
    return [f"the drafter was made for {made_for} tokens, sequences reach {asked}: slower or failing beyond"]


def is_eagle3(draft: ModelConfig) -> bool:
    """Say whether a draft checkpoint is an EAGLE-3 head: by its architecture, or by its own small vocabulary."""
    names = " ".join(str(a) for a in draft.get("architectures") or ()).lower()
    return "eagle3" in names or "draft_vocab_size" in draft or "eagle_config" in draft


def has_mtp_layers(target: ModelConfig) -> bool:
    """Say whether a checkpoint carries draft layers of its own."""
    inner = _inner(target)
    return any((_number(inner, key) or 0) > 0 for key in MTP_KEYS)


def _without_draft(method: str, target: ModelConfig | None) -> list[str]:
    if method in WHOLE_MODEL or method == "eagle3":
        return [f"{method} drafts with a second checkpoint and none is named"]
    plain = target is not None and not PLAIN.isdisjoint(target.get("architectures") or ())
    if target is not None and plain and method in EAGLE and not has_mtp_layers(target):
        return [f"{method} without a draft checkpoint needs a target with draft layers of its own; this one has none"]
    return []


def _kind(method: str, draft: ModelConfig) -> list[str]:
    if method == "eagle3" and not is_eagle3(draft):
        return ["eagle3 is asked for, but the drafter is no EAGLE-3 head: it fails while it is loaded"]
    if method in {"eagle", "nextn"} and is_eagle3(draft):
        return ["the drafter is an EAGLE-3 head: under eagle it starts and next to nothing is accepted; ask for eagle3"]
    if method in WHOLE_MODEL and is_eagle3(draft):
        return [f"{method} wants a whole small model, the drafter is an EAGLE-3 head"]
    return []


def _vocabulary(method: str, target: ModelConfig, draft: ModelConfig) -> list[str]:
    wanted, found = _number(target, "vocab_size"), _number(draft, "vocab_size")
    if wanted is None or found is None:
        return []
    own = _number(draft, "draft_vocab_size")
    if own is not None and own > wanted:
        return [f"the drafter proposes from {own} tokens, the target knows {wanted}"]
    if method == "eagle3" and own is None and found < wanted:
        return []
    if found != wanted:
        return [f"the drafter's vocabulary has {found} entries, the target's {wanted}: drafts would mean other words"]
    return []


def _width(method: str, target: ModelConfig, draft: ModelConfig) -> list[str]:
    if method in WHOLE_MODEL:
        return []
    wanted = _number(target, "hidden_size")
    found = _number(draft, "target_hidden_size") or _number(draft, "hidden_size")
    if wanted is None or found is None or wanted == found:
        return []
    return [f"the drafter reads hidden states of width {found}, the target's have {wanted}"]


def _shards(config: Config, draft: ModelConfig) -> list[str]:
    parallel = _whole(_first(config, TP_FLAGS)) or 1
    heads = _number(draft, "num_attention_heads")
    if heads is not None and parallel > 1 and heads % parallel:
        return [f"the drafter's {heads} attention heads cannot be spread over {parallel} GPUs"]
    return []


def _inner(config: ModelConfig) -> ModelConfig:
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config


def _first(config: Config, names: tuple[str, ...]) -> str:
    return next((str(config[n]) for n in names if n in config), "")


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _number(config: ModelConfig, key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
