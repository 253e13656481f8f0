"""A small space with a rule, a condition, a hidden failure and a known best, for the tests of the search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import FlagValue
from optimizer.search.canonical import CanonicalSpace
from optimizer.search.space import Space
from optimizer.search.spec_space import parse
from optimizer.search.study import Outcome, Result, SearchStudy

SECTION: dict[str, Any] = {
    "parameters": {
        "algorithm": {"choice": ["none", "eagle3", "ngram"]},
        "steps": {"int": [1, 6]},
        "topk": {"choice": [1, 2, 4]},
        "graphs": {"flag": True},
        "memory": {"float": [0.7, 0.9], "step": 0.05},
    },
    "conditions": [
        {"if": "algorithm == none", "then_absent": ["steps", "topk"]},
        {"if": "algorithm == ngram", "then_absent": ["topk"]},
    ],
    "rules": ["steps * topk <= 12"],
}
BEST = {"algorithm": "eagle3", "steps": 3, "topk": 1, "graphs": True, "memory": 0.8}


def space() -> Space:
    return parse(SECTION, presets={})


def canonical() -> CanonicalSpace:
    return CanonicalSpace(space())


def crashes(config: Mapping[str, FlagValue]) -> bool:
    """Much memory with graphs does not fit: the search has to find out."""
    return config.get("graphs") is True and float(config["memory"]) > 0.8


def accept_len(config: Mapping[str, FlagValue]) -> float:
    if config["algorithm"] == "none":
        return 1.0
    steps, topk = float(config["steps"]), float(config.get("topk", 1))
    ceiling = 2.4 if config["algorithm"] == "eagle3" else 1.6
    return 1 + (ceiling - 1) * (1 - math.exp(-0.7 * steps)) * (1 + 0.05 * (topk - 1))


def step_ms(config: Mapping[str, FlagValue]) -> float:
    base = 11.0 if config.get("graphs") is True else 15.0
    if config["algorithm"] == "eagle3":
        base += 1.3 * float(config["steps"]) * (1 + 0.5 * (float(config["topk"]) - 1))
    return base * (1 + 0.1 * (0.8 - float(config["memory"])))


def speed(config: Mapping[str, FlagValue]) -> float:
    """Tokens per second, without noise."""
    return 1000 * accept_len(config) / step_ms(config)


def result(config: Mapping[str, FlagValue]) -> Result:
    if crashes(config):
        return Result(None, Outcome.INFEASIBLE, failure="oom_cuda_graph_capture")
    return Result(speed(config), accept_len=accept_len(config), step_ms=step_ms(config))


def drive(study: SearchStudy, starts: int) -> list[dict[str, FlagValue]]:
    """Ask, measure and tell; return what was asked."""
    asked = []
    for _ in range(starts):
        suggestion = study.ask()
        asked.append(suggestion.params)
        study.tell(suggestion.number, result(suggestion.params))
    return asked
