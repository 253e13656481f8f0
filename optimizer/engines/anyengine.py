"""Explains a log whose engine is not known: with the causes of all engines, and remedies that name no engine's flag."""

from __future__ import annotations

import functools
import importlib

from optimizer.engines import catalogue
from optimizer.engines.base import Explanation, FailureContext
from optimizer.engines.causes import Catalogue
from optimizer.engines.explain import explain as explain_with
from optimizer.engines.registry import ENGINE_NAMES


@functools.cache
def _catalogue() -> Catalogue:
    """Join what the engines know, shared texts first: of equals, what fits any program is preferred."""
    parts = [importlib.import_module(f"optimizer.engines.{name}.failures") for name in ENGINE_NAMES]
    own = [cause for part in parts for cause in part.CAUSES if cause.label != "unknown"]
    marks = sorted((mark for part in parts for mark in part.STAGES), key=lambda mark: -mark.stage)
    return Catalogue("unknown", (*catalogue.SYSTEM, *catalogue.PYTHON, *own), tuple(marks))


def explain(text: str, context: FailureContext) -> Explanation:
    """Explain a failure of an unknown engine; label `none` when there is none."""
    return explain_with(_catalogue(), text, context)
