"""Explains a log whose engine is not known: with the causes of all engines, and remedies that name no engine's flag."""

from __future__ import annotations

from optimizer.engines import catalogue
from optimizer.engines.base import Explanation, FailureContext
from optimizer.engines.causes import Catalogue, Tier
from optimizer.engines.explain import explain as explain_with
from optimizer.engines.llamacpp import failures as llamacpp
from optimizer.engines.sglang import failures as sglang
from optimizer.engines.vllm import failures as vllm

_OWN = (
    *sglang.CAUSES,
    *vllm.CAUSES,
)
_LLAMA = tuple(cause for cause in llamacpp.CAUSES if cause.tier >= Tier.GENERAL)
CATALOGUE = Catalogue(
    "unknown", (*_OWN, *catalogue.SYSTEM, *catalogue.PYTHON, *_LLAMA), (*vllm.STAGES, *sglang.STAGES, *llamacpp.STAGES)
)


def explain(text: str, context: FailureContext) -> Explanation:
    """Explain a failure of an unknown engine; label `none` when there is none."""
    return explain_with(CATALOGUE, text, context)
