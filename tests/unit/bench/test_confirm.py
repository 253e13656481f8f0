"""Several candidates against one baseline: who is restarted next, who is set aside, who has won."""

from __future__ import annotations

import math
import random
from collections import Counter

from optimizer.bench.base import Outcome
from optimizer.bench.verdict import BASELINE, Confirmation, Restart, plan_confirmation

PROMPTS = ("a", "b", "c")


def confirm(
    effects: dict[str, float], *, budget: int, seed: int = 0, noise: float = 0.01, order: list[str] | None = None
) -> tuple[Confirmation, list[Restart]]:
    """Play a whole confirmation with the given true ratios."""
    rng = random.Random(seed)
    names = order or list(effects)
    made: list[Restart] = []
    while True:
        now = plan_confirmation(PROMPTS, names, made, max_restarts=budget)
        if now.next_arm is None:
            return now, made
        ratio = effects.get(now.next_arm, 1.0) * math.exp(rng.gauss(0, noise))
        made.append(Restart(now.next_arm, {p: [100 * ratio * math.exp(rng.gauss(0, noise))] for p in PROMPTS}))


def test_the_faster_candidate_wins_and_the_budget_is_not_used_up() -> None:
    end, made = confirm({"x": 1.12}, budget=20)
    assert end.winner == "x" and end.results["x"].outcome is Outcome.WIN
    assert len(made) < 12
    assert [r.arm for r in made][:4] == [BASELINE, "x", "x", BASELINE]


def test_the_best_of_several_wins() -> None:
    end, made = confirm({"x": 1.06, "y": 1.15, "z": 1.0}, budget=30)
    assert end.winner == "y"
    assert Counter(r.arm for r in made)["z"] <= Counter(r.arm for r in made)["y"]


def test_no_candidate_wins_when_all_are_equal() -> None:
    ends = [confirm({"x": 1.0, "y": 1.0, "z": 1.0}, budget=16, seed=s)[0] for s in range(20)]
    assert all(e.winner is None for e in ends)


def test_the_budget_is_never_exceeded() -> None:
    for budget in (0, 1, 3, 7, 12):
        end, made = confirm({"x": 1.02, "y": 1.01}, budget=budget, noise=0.05)
        assert len(made) <= budget and end.next_arm is None


def test_a_small_budget_is_spent_on_the_best_hope_first() -> None:
    _, made = confirm({"x": 1.03, "y": 1.2}, budget=10, noise=0.02)
    assert {r.arm for r in made[:6]} == {BASELINE, "x"}


def test_the_next_candidate_comes_when_the_first_is_set_aside() -> None:
    end, made = confirm({"x": 0.8, "y": 1.2}, budget=14)
    assert end.set_aside["x"] in ("worse", "no_significant_win")
    assert end.winner == "y"
    first = next(i for i, r in enumerate(made) if r.arm == "y")
    assert BASELINE in [r.arm for r in made[first:]], "the late one has baseline restarts of its own time"


def test_old_baseline_restarts_do_not_judge_a_late_candidate() -> None:
    """The host became 20 % faster after the first candidate: the second must not profit from that."""
    slow = [Restart(BASELINE if i % 4 in (0, 3) else "x", {p: [80.0 + i % 2] for p in PROMPTS}) for i in range(8)]
    fast = [Restart("y" if i % 4 in (0, 3) else BASELINE, {p: [100.0 + i % 2] for p in PROMPTS}) for i in range(8)]
    now = plan_confirmation(PROMPTS, ["x", "y"], [*slow, *fast], max_restarts=40, given_up={"x"})
    assert now.results["y"].ratio < 1.06, "with all baseline restarts it would look like 1.12"
    assert now.results["y"].outcome is not Outcome.WIN


def test_a_candidate_that_was_given_up_cannot_win() -> None:
    _, made = confirm({"x": 1.2}, budget=12)
    now = plan_confirmation(PROMPTS, ["x"], made, max_restarts=12, given_up={"x"})
    assert now.winner is None and now.next_arm is None and now.set_aside == {"x": "given up"}


def test_a_win_once_reached_stays() -> None:
    _, made = confirm({"x": 1.12}, budget=20)
    turned = [Restart(arm, {p: [value] for p in PROMPTS}) for arm, value in ((BASELINE, 130.0), ("x", 90.0))]
    unlucky = [*made, *turned]
    assert plan_confirmation(PROMPTS, ["x"], unlucky, max_restarts=20).winner == "x"


def by_a_coin(seed: int, *, known: int) -> bool:
    """Play a confirmation of three equal candidates on a host whose starts are 20 % faster or not, by chance."""
    rng = random.Random(seed)

    def start(arm: str) -> Restart:
        level = 100 * rng.choice([1.0, 1.2])
        return Restart(arm, {p: [level * math.exp(rng.gauss(0, 0.002))] for p in PROMPTS})

    earlier = [start(BASELINE) for _ in range(known)]
    made: list[Restart] = []
    while (now := plan_confirmation(PROMPTS, "xyz", made, max_restarts=10, earlier=earlier)).next_arm is not None:
        made.append(start(now.next_arm))
    return now.winner is not None


def test_starts_that_agree_by_luck_prove_nothing() -> None:
    wins = sum(by_a_coin(seed, known=4) for seed in range(300))
    assert wins <= 3, "one per cent; without the earlier restarts of the baseline it would be four times as many"


def test_no_candidates_means_nothing_to_do() -> None:
    assert plan_confirmation(PROMPTS, [], [], max_restarts=10).next_arm is None
