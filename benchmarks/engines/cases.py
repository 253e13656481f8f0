"""Flag sets to ask an engine about: drawn from the presets of a version, ignoring their conditions on purpose.

Decides only which requests are asked; the answers come from the engine's own code and from ours.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizer.engines.base import FlagValue, split_env
from optimizer.engines.flag_catalogue import flag_set
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


EXTRAS: tuple[tuple[str, tuple[FlagValue, ...]], ...] = (
    ("quantization", ("fp8", "modelopt_fp4")),
    ("ep-size", (1, 2, 4)),
    ("speculative-algorithm", ("STANDALONE", "eagle", "NGRAM", "EAGLE3", "FOO")),
    ("speculative-draft-window-size", (512, 0)),
    ("speculative-accept-threshold-single", (0.9, 1.0)),
    ("chunked-prefill-size", (-1, 3000)),
    ("page-size", (4, 48, 256)),
    ("cuda-graph-bs", ("1 2 4 8",)),
    ("cuda-graph-bs-decode", ("1 2 4 8 16",)),
    ("cuda-graph-backend-prefill", ("disabled", "breakable")),
    ("disable-cuda-graph", (True,)),
    ("num-continuous-decode-steps", (2, 4)),
    ("schedule-conservativeness", (-1.0,)),
    ("attention-backend", ("torch_native", "flex_attention", "cutedsl_mla")),
    ("kv-cache-dtype", ("fp4_e2m1", "bf16")),
    ("max-total-tokens", (4096, 100000)),
)
"""Flags outside the presets, and values off their ladders."""
SHARE_EXTRA = 0.2
SHARE_MANGLED = 0.08


def mangled(rng: random.Random, argv: list[str]) -> list[str]:
    """Spoil a command line as people do: a cut name, a wrong name, a bad value, a flag of another version."""
    places = [i for i, w in enumerate(argv) if w.startswith("--") and not w.startswith("--model")]
    if not places:
        return argv
    at = rng.choice(places)
    way = rng.choice(("cut", "wrong", "value", "old", "equals"))
    words = list(argv)
    if way == "cut":
        words[at] = words[at][: max(4, len(words[at]) - rng.randint(1, 12))]
    elif way == "wrong":
        words[at] = words[at].replace("-size", "-sizes") + "x"
    elif way == "value":
        words += rng.choice((["--page-size", "big"], ["--schedule-policy", "best"], ["--mem-fraction-static", "x"]))
    elif way == "old":
        words += rng.choice(
            (["--cuda-graph-max-bs", "8"], ["--enable-ep-moe"], ["--max-run", "4"], ["--stream-output"])
        )
    elif at + 1 < len(words) and not words[at + 1].startswith("--"):
        words[at : at + 2] = [f"{words[at]}={words[at + 1]}"]
    return words


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
        config |= draw(rng, presets, names, "speculative-algorithm")
        if rng.random() < SHARE_EXTRA:
            for name, values in rng.sample(EXTRAS, rng.randint(1, 2)):
                if name in flag_set("sglang", version):
                    config[name] = rng.choice(values)
        if config.get("speculative-algorithm") in ("EAGLE", "EAGLE3") and target.draft and rng.random() < 0.95:
            config["speculative-draft-model-path"] = f"{models}/{target.draft}"
        _keep_tree(config)
        flags, env = split_env(config)
        argv = engine.flags_to_argv(flags)
        if rng.random() < SHARE_MANGLED:
            argv = mangled(rng, argv)
        cases.append(Case(f"{version}-{seed}-{i}", config, argv, env))
    return cases


def _keep_tree(config: dict[str, FlagValue]) -> None:
    """Keep the presets' rule on draft trees: no argument code checks it, the server fails later."""
    steps, topk, tokens = (config.get(n) for n in (STEPS, TOPK, TOKENS))
    if isinstance(steps, int) and isinstance(topk, int) and isinstance(tokens, int) and topk > 1:
        config[TOKENS] = min(tokens, tree_capacity(steps, topk))


def draw(rng: random.Random, presets: Mapping[str, Space], names: Sequence[str], method: str) -> dict[str, FlagValue]:
    """Draw values of the named presets; with a method of speculation, most of its sizes are given as well."""
    config: dict[str, FlagValue] = {}
    for name in names:
        for parameter in presets[name].parameters:
            tree = parameter.name.startswith("spec") and method in config
            chance = 0.9 if parameter.name == method else 0.75 if tree and parameter.kind == "int" else SHARE_GIVEN
            if parameter.ladder and rng.random() < chance:
                config[parameter.name] = rng.choice(parameter.ladder)
    return config
