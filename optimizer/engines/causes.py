"""The model of a failure's cause: patterns with a strength, and the stages a server goes through.

Decides what a cause is made of and how strong its text is; leaves which causes exist to the catalogues and which one
is to blame to `explain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from optimizer.engines.base import Blame
from optimizer.engines.policy import POLICIES


class Tier(IntEnum):
    """How much a text proves. Among equals the first in time is the cause."""

    SYMPTOM = 1
    """Something failed, not why: wrappers, the death of a process, signals sent by the server to itself."""
    FALLBACK = 2
    """Some exception, known by its type alone."""
    VICTIM = 3
    """This process only noticed that another one had ended."""
    GENERAL = 4
    """A text that usually has one cause."""
    CAUSE = 5
    """A cause that the text names."""
    DECISIVE = 6
    """A cause so exact that it explains weaker causes around it."""


class Stage(IntEnum):
    """How far a server had come; the same text means different things in different stages."""

    UNKNOWN = 0
    ARGUMENTS = 1
    INIT = 2
    WEIGHTS = 3
    KV_CACHE = 4
    GRAPHS = 5
    HTTP = 6
    READY = 7
    SERVING = 8


STAGE_WORDS = {
    Stage.UNKNOWN: "at an unknown stage",
    Stage.ARGUMENTS: "while reading its arguments",
    Stage.INIT: "while initialising devices and ranks",
    Stage.WEIGHTS: "while loading weights",
    Stage.KV_CACHE: "while allocating the KV cache",
    Stage.GRAPHS: "while capturing graphs",
    Stage.HTTP: "between opening the port and the first answer",
    Stage.READY: "after it was ready",
    Stage.SERVING: "while serving",
}

BY_STAGE = "oom_by_stage"
"""Stands for the label that an out-of-memory text has in the stage where it occurred."""


@dataclass(frozen=True)
class Cause:
    """One cause: any of `patterns` (lower case, searched in the lower-cased line) names it.

    `near` must, and `unless` must not, match in the lines around it. `stages` limits where it may occur.
    """

    label: str
    tier: Tier
    patterns: tuple[re.Pattern[str], ...]
    summary: str = ""
    remedy: str = ""
    near: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    stages: frozenset[Stage] = frozenset()
    blame: Blame | None = None
    retry: bool | None = None
    stop_study: bool | None = None
    confidence: float | None = None
    fatal: bool = False
    """Printed only by a process that ends at once."""

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match in a lower-cased line."""
        for pattern in self.patterns:
            found = pattern.search(text)
            if found:
                return found
        return None


def cause(
    label: str,
    tier: Tier,
    *patterns: str,
    summary: str = "",
    remedy: str = "",
    near: str = "",
    unless: str = "",
    stages: Iterable[Stage] = (),
    blame: Blame | None = None,
    retry: bool | None = None,
    stop: bool | None = None,
    confidence: float | None = None,
    fatal: bool = False,
) -> Cause:
    """Write one cause of a catalogue.

    Raises:
        ValueError: the label is not one of the table, or a pattern has capitals (it could never match).
    """
    if label not in POLICIES and label != BY_STAGE:
        raise ValueError(f"no such label: {label}")
    for pattern in (*patterns, near, unless):
        if re.sub(r"\\.|\(\?P<\w+>", "", pattern) != re.sub(r"\\.|\(\?P<\w+>", "", pattern).lower():
            raise ValueError(f"pattern must be in lower case: {pattern}")
    return Cause(
        label,
        tier,
        tuple(re.compile(pattern) for pattern in patterns),
        summary,
        remedy,
        re.compile(near) if near else None,
        re.compile(unless) if unless else None,
        frozenset(stages),
        blame,
        retry,
        stop,
        confidence,
        fatal,
    )


@dataclass(frozen=True)
class StageMark:
    """A line that shows how far the server had come."""

    stage: Stage
    pattern: re.Pattern[str]


def marks(*pairs: tuple[Stage, str]) -> tuple[StageMark, ...]:
    """Write the stage lines of an engine; patterns in lower case."""
    return tuple(StageMark(stage, re.compile(pattern)) for stage, pattern in pairs)


@dataclass(frozen=True)
class Catalogue:
    """All that is known about one engine's failures."""

    engine: str
    causes: tuple[Cause, ...]
    stages: tuple[StageMark, ...]
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What remedies call the engine's settings: flags without dashes in the order of preference."""
    oom: Mapping[Stage, str] = field(default_factory=dict)
    """Remedies for a lack of GPU memory by stage, where the engine needs other words than the table's."""


COMMON_OOM = {
    Stage.UNKNOWN: "oom_weights",
    Stage.ARGUMENTS: "oom_weights",
    Stage.INIT: "oom_weights",
    Stage.WEIGHTS: "oom_weights",
    Stage.KV_CACHE: "oom_kv_cache",
    Stage.GRAPHS: "oom_cuda_graph_capture",
    Stage.HTTP: "oom_runtime",
    Stage.READY: "oom_runtime",
    Stage.SERVING: "oom_runtime",
}
"""Label of the same out-of-memory text by the stage where it occurred."""
