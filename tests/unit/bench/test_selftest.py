"""Noise of a host, restarts needed, expected speed and drift."""

from __future__ import annotations

import random

import pytest

from optimizer.bench.base import Outcome
from optimizer.bench.baseline import check_expected, drift
from optimizer.bench.judging import Restart, judge
from optimizer.bench.selftest import as_arms, estimate_noise, restarts_needed, self_test
from tests.unit.bench.test_judging import PROMPTS, restarts


def same(count: int, *, seed: int = 0, within: float = 0.03, between: float = 0.02) -> list[Restart]:
    return restarts(1.0, count, seed=seed, within=within, between=between)


def test_noise_is_split_into_its_parts() -> None:
    noise = estimate_noise(PROMPTS, same(200))
    assert noise.within == pytest.approx(0.03, rel=0.1)
    assert noise.between == pytest.approx(0.02, rel=0.15)
    assert noise.restart == pytest.approx((0.02**2 + 0.03**2 / 5) ** 0.5, rel=0.1)
    quiet = estimate_noise(PROMPTS, same(200, between=0.0))
    assert quiet.between < 0.006


def test_noise_needs_two_restarts() -> None:
    with pytest.raises(ValueError, match="two restarts"):
        estimate_noise(PROMPTS, same(1)[:1])


def test_more_noise_needs_more_restarts_and_they_suffice() -> None:
    noise = estimate_noise(PROMPTS, same(200))
    needed = [restarts_needed(noise, gain) for gain in (0.10, 0.05, 0.02)]
    assert all(n is not None for n in needed) and needed == sorted(needed, key=lambda n: n or 0)
    count = needed[0] or 0
    wins = sum(
        judge(PROMPTS, restarts(1.10, count, seed=s, between=0.02), max_restarts=2 * count).outcome is Outcome.WIN
        for s in range(100)
    )
    assert wins >= 78, "the last look alone gives about nine of ten"
    assert restarts_needed(noise, 0.0001) is None


def test_the_baseline_against_itself_is_no_win() -> None:
    results = [self_test(PROMPTS, same(5, seed=s)) for s in range(40)]
    assert sum(r.passed for r in results) >= 39
    assert all(r.restarts_needed[0.10] for r in results)
    assert results[0].noise.restarts == 10


def test_arms_are_labelled_in_turn() -> None:
    assert [r.arm[0] for r in as_arms(same(4))] == list("bccbbccb")


def test_the_expected_speed_is_checked_both_ways() -> None:
    assert check_expected(91, 90, 5) is None
    assert check_expected(80, None, 5) is None
    slow, fast = check_expected(80, 90, 5), check_expected(100, 90, 5)
    assert slow and "11.1% slower than the expected 90" in slow
    assert fast and "faster" in fast


def test_drift_is_told_when_it_is_certain_and_large() -> None:
    rng = random.Random(1)
    hours = [float(h) for h in range(8)]
    falling = drift(hours, [90 * 0.99**h * (1 + rng.gauss(0, 0.003)) for h in hours])
    assert falling and falling.significant and falling.total == pytest.approx(-0.07, abs=0.015)
    assert "drifted by -" in falling.text
    steady = drift(hours, [90 * (1 + rng.gauss(0, 0.01)) for _ in hours])
    assert steady and not steady.significant and steady.text == ""
    assert drift([1, 2], [90, 91]) is None and drift([1, 1, 1], [90, 91, 92]) is None
