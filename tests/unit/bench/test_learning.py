"""Repeats that are faster because the server has seen the prompt do not count as cold."""

from __future__ import annotations

import math
import random

import pytest

from optimizer.bench.base import RequestSample
from optimizer.bench.learning import gain_by_speed, repeat_gain
from optimizer.engines.base import SpeculationSample
from tests.unit.bench.fakes import FakeEngine, sample

UNKNOWN = SpeculationSample()


def asked_twice(first: float, second: float, *, accepted: tuple[int, int] | None = None) -> list[RequestSample]:
    """Five prompts, two repeats, with the seconds each took and the accepted of 100 tokens."""
    made = []
    for prompt in "abcde":
        for repeat, seconds in enumerate((first, second)):
            timings = {"draft_n": 90, "draft_n_accepted": accepted[repeat], "predicted_n": 100} if accepted else {}
            made.append(sample(prompt, repeat=repeat, end_s=seconds, engine_timings=timings))
    return made


def test_what_the_engine_accepted_decides() -> None:
    learnt = repeat_gain(FakeEngine(), asked_twice(1.0, 1.0, accepted=(40, 60)), UNKNOWN)
    assert learnt == pytest.approx(1.5)
    assert repeat_gain(FakeEngine(), asked_twice(2.0, 1.0, accepted=(40, 40)), UNKNOWN) is None, "only the host changed"


def test_a_server_that_drafts_nothing_cannot_learn() -> None:
    assert repeat_gain(FakeEngine(), asked_twice(2.0, 1.0), SpeculationSample(drafted_tokens=0)) is None
    assert repeat_gain(FakeEngine(), asked_twice(2.0, 1.0), SpeculationSample(accept_len=1.0)) is None


def test_speed_decides_where_the_engine_does_not_say() -> None:
    assert repeat_gain(FakeEngine(), asked_twice(1.2, 1.0), UNKNOWN) == pytest.approx(1.2)
    assert repeat_gain(FakeEngine(), asked_twice(1.0, 1.0), UNKNOWN) is None
    rng = random.Random(3)
    steady = {p: [100 * math.exp(rng.gauss(0, 0.02)) for _ in range(3)] for p in "abcde"}
    assert gain_by_speed(steady) is None
    assert gain_by_speed({"a": [1.0]}) is None
