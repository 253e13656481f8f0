"""Says which engine wrote a log, by what only that engine prints."""

from __future__ import annotations

import functools
import importlib
import re

from optimizer.engines.logtext import strip_colours
from optimizer.engines.registry import ENGINE_NAMES


@functools.cache
def _signs() -> dict[str, tuple[tuple[int, re.Pattern[str]], ...]]:
    found = {}
    for engine in ENGINE_NAMES:
        pairs = importlib.import_module(f"optimizer.engines.{engine}.signs").SIGNS
        found[engine] = tuple((weight, re.compile(pattern, re.I | re.M)) for weight, pattern in pairs)
    return found


HEAD, TAIL = 400_000, 400_000
ENOUGH = 40
"""Occurrences counted of one sign: a long log is no surer than a short one."""


def detect_engine(text: str) -> str | None:
    """Return `sglang`, `vllm` or `llamacpp`, or None when nothing in the log tells."""
    if len(text) > HEAD + TAIL:
        text = text[:HEAD] + "\n" + text[-TAIL:]
    text = strip_colours(text)
    scores = {engine: _score(text, signs) for engine, signs in _signs().items()}
    best = max(scores, key=lambda engine: scores[engine])
    return best if scores[best] > 0 else None


def _score(text: str, signs: tuple[tuple[int, re.Pattern[str]], ...]) -> float:
    total = 0.0
    for weight, pattern in signs:
        count = 0
        for _ in pattern.finditer(text):
            count += 1
            if count >= ENOUGH:
                break
        if count:
            total += weight + min(count, ENOUGH) * 0.1
    return total
