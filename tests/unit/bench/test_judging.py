"""The verdict: right on clear cases, honest about its error, and always told what comes next."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.bench.base import Outcome, VerdictResult
from optimizer.bench.judging import Restart, judge, look_share, next_arm
from optimizer.bench.verdict import BASELINE, CANDIDATE
from optimizer.errors import BadInput

PROMPTS = ("a", "b", "c", "d", "e")
SPEED = {"a": 90.0, "b": 60.0, "c": 120.0, "d": 75.0, "e": 84.0}


def restarts(ratio: float, count: int, *, seed: int = 0, within: float = 0.03, between: float = 0.01) -> list[Restart]:
    """Return interleaved restarts of both arms with log-normal noise."""
    rng = random.Random(seed)
    made: list[Restart] = []
    arms = {BASELINE: 0, CANDIDATE: 0}
    for _ in range(2 * count):
        arm = next_arm(arms[BASELINE], arms[CANDIDATE])
        arms[arm] += 1
        shared = math.exp(rng.gauss(0, between)) * (ratio if arm == CANDIDATE else 1.0)
        made.append(Restart(arm, {p: [v * shared * math.exp(rng.gauss(0, within))] for p, v in SPEED.items()}))
    return made


def judged(ratio: float, count: int, **fields: Any) -> VerdictResult:
    options = {k: fields.pop(k) for k in ("max_restarts", "alpha", "min_effect") if k in fields}
    return judge(PROMPTS, restarts(ratio, count, **fields), **options)


def test_a_clear_gain_is_a_win() -> None:
    result = judged(1.12, 5)
    assert result.outcome is Outcome.WIN and result.next == "stop"
    assert 1.0 < result.ci_low < 1.12 < result.ci_high
    assert result.restarts == 10 and result.confidence == 0.95


def test_a_clear_loss_is_worse() -> None:
    result = judged(0.88, 5)
    assert result.outcome is Outcome.WORSE and result.next == "stop" and result.ci_high < 1


def test_equal_arms_are_no_win_at_any_look() -> None:
    outcomes = {judged(1.0, n, seed=s).outcome for s in range(30) for n in (2, 3, 4, 5)}
    assert Outcome.WIN not in outcomes
    assert Outcome.NO_SIGNIFICANT_WIN in outcomes


def test_a_gain_below_the_least_effect_is_no_win() -> None:
    result = judged(1.005, 6, within=0.001, between=0.0005)
    assert result.outcome is Outcome.NO_SIGNIFICANT_WIN
    assert result.ci_low > 1, "it is a gain, but one that does not count"


def test_too_few_restarts_are_undecided_and_ask_for_more() -> None:
    for given_restarts, wanted in (
        ([], "baseline"),
        (restarts(1.5, 1)[:1], "candidate"),
        (restarts(1.5, 1), "candidate"),
    ):
        result = judge(PROMPTS, given_restarts)
        assert result.outcome is Outcome.UNDECIDED and result.next == wanted
        assert result.ci_low == 0 and math.isinf(result.ci_high)
    assert judge(PROMPTS, restarts(1.5, 1)).ratio == pytest.approx(1.5, rel=0.1)


def test_the_budget_ends_it() -> None:
    assert judged(1.02, 3, max_restarts=6, within=0.05, between=0.05).next == "stop"
    promising = judged(1.06, 3, max_restarts=6, between=0.04, seed=5)
    assert promising.next == "stop" and promising.outcome in (Outcome.UNDECIDED, Outcome.NO_SIGNIFICANT_WIN)


def test_the_order_is_a_b_b_a() -> None:
    arms = [r.arm[0] for r in restarts(1.0, 4)]
    assert "".join(arms) == "bccbbccb"


def test_a_steady_drift_does_not_become_a_win() -> None:
    made = restarts(1.0, 4, within=0.002, between=0.001)
    drifted = [Restart(r.arm, {p: [v[0] * 1.01**i] for p, v in r.tok_s.items()}) for i, r in enumerate(made)]
    assert judge(PROMPTS, drifted).ratio == pytest.approx(1.0, abs=0.002)


def test_a_prompt_that_failed_somewhere_is_left_out_of_all() -> None:
    made = restarts(1.12, 5)
    holed = [Restart(r.arm, {p: v for p, v in r.tok_s.items() if p != "a" or i != 3}) for i, r in enumerate(made)]
    assert judge(PROMPTS, holed).outcome is Outcome.WIN
    assert judge(PROMPTS, holed) == judge(PROMPTS[1:], made)


def test_the_prompts_own_speeds_cancel() -> None:
    made = restarts(1.08, 4)
    scaled = [Restart(r.arm, {p: [v[0] * (10 if p == "a" else 1)] for p, v in r.tok_s.items()}) for r in made]
    assert judge(PROMPTS, scaled).ci_low == pytest.approx(judge(PROMPTS, made).ci_low)


def test_repeats_are_not_taken_for_restarts() -> None:
    """Many repeats within two servers say nothing about the difference between servers."""
    rng = random.Random(1)
    made = [
        Restart(arm, {p: [v * shared * math.exp(rng.gauss(0, 0.01)) for _ in range(50)] for p, v in SPEED.items()})
        for arm, shared in ((BASELINE, 1.0), (CANDIDATE, 1.06), (CANDIDATE, 1.02), (BASELINE, 0.97))
    ]
    assert judge(PROMPTS, made).outcome is Outcome.UNDECIDED


def test_identical_values_do_not_give_a_certain_win() -> None:
    same = [Restart(a, {"a": [100.0 if a == BASELINE else 100.9]}) for a in (BASELINE, CANDIDATE, CANDIDATE, BASELINE)]
    assert judge(["a"], same, min_effect=0.0).outcome is not Outcome.WIN


@given(st.integers(2, 60), st.one_of(st.none(), st.integers(4, 100)))
def test_the_error_spent_never_exceeds_the_whole(start: int, most: int | None) -> None:
    spent, b, c = 0.0, 2, 2
    while b + c <= min(most or 200, 4 + start):
        spent += look_share(b, c, most)
        b, c = (b + 1, c) if b <= c else (b, c + 1)
    assert spent <= 1.0 + 1e-9


@settings(deadline=None)
@given(st.floats(0.5, 2.0), st.integers(0, 10_000), st.integers(1, 5))
def test_swapping_scale_and_order_of_prompts_changes_nothing(ratio: float, seed: int, count: int) -> None:
    made = restarts(ratio, count, seed=seed)
    result = judge(PROMPTS, made)
    turned = judge(PROMPTS[::-1], [Restart(r.arm, {p: [v[0] * 3] for p, v in r.tok_s.items()}) for r in made])
    assert turned.outcome is result.outcome
    assert turned.ratio == pytest.approx(result.ratio)
    assert result.ci_low <= result.ratio <= result.ci_high


def test_false_wins_stay_below_one_per_cent_and_power_is_there() -> None:
    studies = 400
    false = sum(_study(1.0, seed) for seed in range(studies))
    found = sum(_study(1.10, seed) for seed in range(100))
    assert false <= 0.02 * studies, "twice the promised share would be beyond chance in 400 studies"
    assert found >= 90


def _study(ratio: float, seed: int) -> bool:
    """Look after every restart, as a study does; say whether it ended in a win."""
    made = restarts(ratio, 6, seed=seed, between=0.015)
    for end in range(4, len(made) + 1):
        result = judge(PROMPTS, made[:end], max_restarts=12)
        if result.outcome is not Outcome.UNDECIDED:
            return result.outcome is Outcome.WIN
    return False


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 0.7}, "alpha"),
        ({"min_effect": -0.1}, "min_effect"),
        ({"error_share": 0.0}, "error_share"),
        ({"prompts": []}, "prompts"),
        ({"prompts": ["zz"]}, "restarts"),
        ({"restarts": [{"arm": "other", "tok_s": {"a": [1]}}]}, "restarts[0].arm"),
        ({"restarts": [{"arm": "baseline", "tok_s": {"a": ["x"]}}]}, "restarts[0].tok_s.a"),
        ({"restarts": [{"arm": "baseline", "tok_s": {"a": [-1]}}]}, "restarts[0].tok_s.a"),
        ({"restarts": [{"arm": "baseline", "tok_s": {"a": [float("nan")]}}]}, "restarts[0].tok_s.a"),
        ({"restarts": [{"arm": "baseline"}]}, "restarts[0].tok_s"),
    ],
)
def test_bad_input_is_told_with_its_path(changes: dict[str, Any], path: str) -> None:
    fields: dict[str, Any] = {"prompts": PROMPTS, "restarts": restarts(1.0, 2), **changes}
    with pytest.raises(BadInput) as caught:
        judge(fields.pop("prompts"), fields.pop("restarts"), **fields)
    assert path in [p.path for p in caught.value.problems]
