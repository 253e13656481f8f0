"""Flag sets to ask an engine about: drawn from the presets of a version, ignoring their conditions on purpose.

Decides only which requests are asked; the answers come from the engine's own code and from ours.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizer.engines.base import FlagValue, split_env
from optimizer.engines.registry import find_engine
from optimizer.engines.sglang.presets import STEPS, TOKENS, TOPK
from optimizer.engines.sglang.spec_rules import tree_capacity
from optimizer.search.space import Space

SHARE_GIVEN = 0.35
"""Chance that a parameter of the drawn presets is given at all."""


@dataclass(frozen=True)
class Target:
    """A model to serve, with the sizes it is served with and the draft that fits it."""

    model: str
    tp: tuple[int, ...]
    draft: str = ""
    presets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One request: the configuration, as words, and its environment."""

    ident: str
    config: dict[str, FlagValue]
    argv: list[str]
    env: dict[str, str]


SGLANG_TARGETS = (
    Target("cfg-llama31-8b", (1, 1, 2, 4), "cfg-eagle3-llama", ("eagle3", "eagle", "ngram")),
    Target("cfg-qwen3-30b-a3b", (1, 2, 4), "", ("ngram", "mtp")),
    Target("cfg-deepseek-v3", (8,), "", ("mtp", "eagle", "ngram")),
)
PLAIN = ("cuda-graphs", "nccl", "memory", "scheduling", "kernels")


def sglang_cases(version: str, count: int, seed: int, models: str) -> list[Case]:
    """Draw `count` requests for a version; the same seed gives the same requests."""
    rng = random.Random(f"{version}/{seed}")
    engine = find_engine("sglang")
    presets = engine.presets(version)
    cases: list[Case] = []
    for i in range(count):
        target = rng.choice(SGLANG_TARGETS)
        config: dict[str, FlagValue] = {"model-path": f"{models}/{target.model}", "tp-size": rng.choice(target.tp)}
        names = [n for n in (rng.choice((*target.presets, "")), *rng.sample(PLAIN, rng.randint(1, 3))) if n in presets]
        config |= _drawn(rng, presets, names)
        if config.get("speculative-algorithm") in ("EAGLE", "EAGLE3") and target.draft and rng.random() < 0.95:
            config["speculative-draft-model-path"] = f"{models}/{target.draft}"
        _keep_tree(config)
        flags, env = split_env(config)
        cases.append(Case(f"{version}-{seed}-{i}", config, engine.flags_to_argv(flags), env))
    return cases


def _keep_tree(config: dict[str, FlagValue]) -> None:
    """Keep the presets' rule on draft trees: no argument code checks it, the server fails later."""
    steps, topk, tokens = (config.get(n) for n in (STEPS, TOPK, TOKENS))
    if isinstance(steps, int) and isinstance(topk, int) and isinstance(tokens, int) and topk > 1:
        config[TOKENS] = min(tokens, tree_capacity(steps, topk))


def _drawn(rng: random.Random, presets: Mapping[str, Space], names: Sequence[str]) -> dict[str, FlagValue]:
    config: dict[str, FlagValue] = {}
    for name in names:
        for parameter in presets[name].parameters:
            is_method = parameter.name == "speculative-algorithm"
            tree = parameter.name.startswith("speculative-") and "speculative-algorithm" in config
            chance = 0.9 if is_method else 0.75 if tree and parameter.kind == "int" else SHARE_GIVEN
            if parameter.ladder and rng.random() < chance:
                config[parameter.name] = rng.choice(parameter.ladder)
    return config
