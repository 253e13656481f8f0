"""Synthetic landscapes for developing the search. SYNTHETIC: nothing here was measured.

They only have the shape of the problem: accept length saturating with the tree, step time nearly additive, rewrites
and crashes, anchored at one set of figures (no speculation 90 tok/s; EAGLE-3 with 16 draft tokens 55 without and 75
with CUDA graphs; with 5 draft tokens 82; the best about 118). Claims come from recorded tables (`benchmarks/tables`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from optimizer.engines.base import Effective, FlagValue, Verdict
from optimizer.search.canonical import Candidate, CanonicalSpace
from optimizer.search.spec_space import parse
from optimizer.search.table import Restart

Config = Mapping[str, FlagValue]

EAGLE_SPACE: dict[str, Any] = {
    "parameters": {
        "speculative-algorithm": {"choice": ["none", "EAGLE3", "NGRAM"]},
        "speculative-num-steps": {"int": [1, 8]},
        "speculative-eagle-topk": {"choice": [1, 2, 4, 8]},
        "speculative-num-draft-tokens": {"choice": [2, 3, 4, 5, 6, 8, 12, 16, 24, 32]},
        "speculative-draft-model-path": {"choice": ["/drafts/a", "/drafts/b", "/drafts/c"]},
        "disable-cuda-graph": {"flag": True},
        "cuda-graph-max-bs": {"choice": [1, 4, 16, 64]},
        "attention-backend": {"choice": ["fa3", "flashinfer", "triton"]},
        "mem-fraction-static": {"float": [0.7, 0.92], "step": 0.02},
        "env.NCCL_PROTO": {"choice": ["LL", "LL128", "Simple"]},
        "env.NCCL_ALGO": {"choice": ["Ring", "Tree"]},
        "disable-custom-all-reduce": {"flag": True},
        "enable-torch-compile": {"flag": True},
    },
    "conditions": [
        {
            "if": "speculative-algorithm == none",
            "then_absent": ["speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens"],
        },
        {"if": "speculative-algorithm != EAGLE3", "then_absent": ["speculative-draft-model-path"]},
        {"if": "speculative-algorithm == NGRAM", "then_absent": ["speculative-num-steps", "speculative-eagle-topk"]},
        {"if": "disable-cuda-graph is present", "then_absent": ["cuda-graph-max-bs"]},
    ],
    "rules": [
        "speculative-num-draft-tokens <= 1 + k + (s-1)*k*k where k=speculative-eagle-topk, s=speculative-num-steps",
        "speculative-algorithm != EAGLE3 or speculative-num-draft-tokens > speculative-num-steps",
    ],
}
HOME = {
    "speculative-algorithm": "none",
    "cuda-graph-max-bs": 16,
    "attention-backend": "fa3",
    "mem-fraction-static": 0.84,
    "env.NCCL_PROTO": "Simple",
    "env.NCCL_ALGO": "Ring",
}


@dataclass(frozen=True)
class Landscape:
    """A synthetic table: speeds by formula, log-normal noise per restart, crashes with labels."""

    name: str
    speed: Callable[[Config], tuple[float, float]]
    """Tokens per second without noise, and accept length."""
    crash: Callable[[Config], str]
    section: dict[str, Any]
    home: Config
    cv: float = 0.02
    effective: Callable[[Config], Effective] | None = None
    seen: dict[str, float] = field(default_factory=dict)

    @cached_property
    def space(self) -> CanonicalSpace:
        """The canonical space."""
        from dataclasses import replace

        parsed = parse(self.section, presets={})
        return CanonicalSpace(replace(parsed, defaults=(dict(self.home),)), self.effective)

    @property
    def baseline(self) -> Candidate | None:
        """What runs at home."""
        return self.space.check(self.home).candidate

    @cached_property
    def _all(self) -> tuple[float, int]:
        """Best speed and number of servers: by listing where that is possible, else by climbing from many draws."""
        listed = self.space.enumerate(200_000)
        if listed is not None:
            return max(self.true_speed(c) for c in listed), len(listed)
        rng = np.random.default_rng(12345)
        best = 0.0
        starts = sorted(
            (c for _ in range(3000) if (c := self.space.sample(rng)) is not None), key=self.true_speed, reverse=True
        )
        for place in starts[:60]:
            here = place
            while True:
                step = max(self.space.neighbours(here.params), key=self.true_speed)
                if self.true_speed(step) <= self.true_speed(here):
                    break
                here = step
            best = max(best, self.true_speed(here))
        return best, self.space.size_estimate(rng).servers

    @property
    def best(self) -> float:
        """The speed of the best configuration."""
        return self._all[0]

    @property
    def servers(self) -> int:
        """How many servers there are, about."""
        return self._all[1]

    def true_speed(self, candidate: Candidate) -> float:
        """Speed without noise; 0 for a configuration that crashes."""
        if candidate.key not in self.seen:
            crashed = self.crash(candidate.effective)
            self.seen[candidate.key] = 0.0 if crashed else self.speed(candidate.effective)[0]
        return self.seen[candidate.key]

    def draw(self, candidate: Candidate, rng: np.random.Generator) -> Restart:
        """Start it once."""
        label = self.crash(candidate.effective)
        noise = math.exp(self.cv * rng.standard_normal())
        if label:
            return Restart(None, failed=label)
        speed, accept = self.speed(candidate.effective)
        accept *= math.exp(0.005 * rng.standard_normal()) if accept > 1 else 1.0
        return Restart(speed * noise, accept_len=accept, step_ms=1000 * accept / (speed * noise))


def _tree(config: Config) -> tuple[float, float, float]:
    """Steps, topk and draft tokens of a speculative configuration."""
    tokens = float(config.get("speculative-num-draft-tokens", 1))
    return (
        float(config.get("speculative-num-steps", tokens - 1)),
        float(config.get("speculative-eagle-topk", 1)),
        tokens,
    )


def eagle_accept_len(config: Config, *, gain: float = 1.0) -> float:
    """Accept length with the bonus token: saturates with depth, grows a little with breadth, differs by draft."""
    algorithm = config["speculative-algorithm"]
    if algorithm == "none":
        return 1.0
    steps, topk, tokens = _tree(config)
    if algorithm == "NGRAM":
        return 1 + gain * 0.45 * (1 - math.exp(-0.3 * (tokens - 1)))
    ceiling = {"/drafts/a": 1.15, "/drafts/b": 1.5, "/drafts/c": 0.7}[str(config["speculative-draft-model-path"])]
    breadth = 1 + 0.16 * math.log2(topk) * (1 - math.exp(-(tokens - steps) / 6))
    return 1 + gain * ceiling * (1 - math.exp(-0.55 * steps)) * breadth


def eagle_step_ms(config: Config) -> float:
    """Time of one verify step: nearly additive in the flags, with graphs and draft depth interacting."""
    step = {"fa3": 9.2, "flashinfer": 9.7, "triton": 10.5}[str(config["attention-backend"])]
    step += {"LL": 0.35, "LL128": 0.0, "Simple": 1.1}[str(config["env.NCCL_PROTO"])]
    step += 0.0 if config["env.NCCL_ALGO"] == "Tree" else 0.55
    step += 0.9 if config.get("disable-custom-all-reduce") is True else 0.0
    step += 1.2 * abs(float(config["mem-fraction-static"]) - 0.82)
    if config.get("enable-torch-compile") is True:
        step -= 0.25
    launches = 1.0
    if config["speculative-algorithm"] != "none":
        steps, topk, tokens = _tree(config)
        step += 0.4 * tokens + (0.55 if config["attention-backend"] == "triton" else 0.7) * 0.5 * (topk > 1)
        if config["speculative-algorithm"] == "EAGLE3":
            step += steps * 2.6
            launches = 1.0 + 0.35 * steps
    if config.get("disable-cuda-graph") is True:
        return step + 4.2 * launches
    bs = float(config.get("cuda-graph-max-bs", 16))
    return step + 0.12 * abs(math.log2(bs / 4))


def eagle_crash(config: Config) -> str:
    """Label of the failure, or nothing."""
    speculative = config["speculative-algorithm"] == "EAGLE3"
    memory = float(config["mem-fraction-static"])
    graphs = config.get("disable-cuda-graph") is not True
    bs = float(config.get("cuda-graph-max-bs", 0))
    need = memory + (0.045 if speculative else 0.0) + (0.012 * math.log2(bs + 1) if graphs else 0.0)
    if need > 0.955:
        return "oom_cuda_graph_capture" if graphs else "oom_kv_cache"
    if speculative and _tree(config)[1] > 1 and config["attention-backend"] == "flashinfer":
        return "unsupported_combination"
    if config.get("enable-torch-compile") is True and config["attention-backend"] == "triton":
        return "cuda_graph_capture_failed"
    if config.get("enable-torch-compile") is True and not graphs:
        return "unsupported_combination"
    return ""


def _eagle(gain: float) -> Callable[[Config], tuple[float, float]]:
    def speed(config: Config) -> tuple[float, float]:
        accept = eagle_accept_len(config, gain=gain)
        return 1000 * accept / eagle_step_ms(config), accept

    return speed


def eagle3(cv: float = 0.02) -> Landscape:
    """The shape of the story: speculation pays when tree, draft and graphs fit; a quarter of the requests crash."""
    return Landscape(f"synthetic-eagle3-cv{cv:g}", _eagle(1.0), eagle_crash, EAGLE_SPACE, HOME, cv)


def default_best(cv: float = 0.02) -> Landscape:
    """Speculation never pays and the default is the best there is."""
    best = {**HOME, "env.NCCL_PROTO": "LL128", "env.NCCL_ALGO": "Tree", "mem-fraction-static": 0.82}
    best |= {"cuda-graph-max-bs": 4, "enable-torch-compile": True}
    return Landscape(f"synthetic-default-best-cv{cv:g}", _eagle(0.12), eagle_crash, EAGLE_SPACE, best, cv)


def noisy() -> Landscape:
    """The EAGLE-3 shape with a run-to-run variation of 8 %."""
    return eagle3(cv=0.08)


def rewriting(cv: float = 0.02) -> Landscape:
    """The EAGLE-3 shape where the engine rewrites requests silently, so that many are one server."""

    def effective(config: Config) -> Effective:
        becomes = dict(config)
        if becomes.get("speculative-eagle-topk") == 1 and "speculative-num-steps" in becomes:
            becomes["speculative-num-draft-tokens"] = int(becomes["speculative-num-steps"]) + 1
        if becomes.get("disable-custom-all-reduce") is not True:
            becomes.pop("env.NCCL_ALGO", None)
        verdict = Verdict.ACCEPTED if becomes == dict(config) else Verdict.ADJUSTED
        return Effective(verdict, becomes)

    def speed(config: Config) -> tuple[float, float]:
        return _eagle(1.0)({"env.NCCL_ALGO": "Tree", **config})

    return Landscape(f"synthetic-rewriting-cv{cv:g}", speed, eagle_crash, EAGLE_SPACE, HOME, cv, effective)


ALL: dict[str, Callable[[], Landscape]] = {
    "eagle3": eagle3,
    "default-best": default_best,
    "noisy": noisy,
    "rewriting": rewriting,
}
