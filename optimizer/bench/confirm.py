"""Which server to restart next when candidates are confirmed against one baseline. Pure.

Decides the order (interleaved, forwards and backwards in turn), when a candidate is set aside, and who has won. The
judgement of one candidate is `judging.judge`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from optimizer.bench.base import Outcome, VerdictResult
from optimizer.bench.judging import BASELINE, CANDIDATE, Restart, estimate, judge

BEHIND_ERROR = 0.05
"""A candidate is set aside when the one-sided 95 % bound of its gain over the best one is below 0. Setting one aside
cannot cause a false win, so this needs no share of alpha."""
RESTARTS_EACH = 6
"""Candidates are confirmed side by side only as far as the budget gives each arm that many restarts."""
RESERVE_WEIGHT = 0.25
"""A candidate that waits until another was set aside gets that part of the error of one that starts at once."""


@dataclass(frozen=True)
class Confirmation:
    """Where the confirmation stands: `next_arm` is `baseline`, a candidate's key, or None when it is over."""

    next_arm: str | None
    results: dict[str, VerdictResult]
    winner: str | None = None
    set_aside: dict[str, str] = field(default_factory=dict)
    """Candidates that get no more restarts, with the reason."""


def plan_confirmation(
    prompts: Sequence[str],
    candidates: Sequence[str],
    restarts: Sequence[Restart],
    *,
    alpha: float = 0.05,
    min_effect: float = 0.01,
    max_restarts: int = 10,
    given_up: Collection[str] = (),
    earlier: Sequence[Restart] = (),
) -> Confirmation:
    """Say which arm to restart next, given all fresh restarts so far in the order they were made.

    `candidates` are keys, the best hope first, fixed for the whole confirmation; each restart's `arm` is one of them
    or `baseline`. `max_restarts` counts all arms. A restart that failed is left out of `restarts`; a candidate that
    cannot go on (it fails to start, its output is suspect) is named in `given_up`. Measurements of the exploration
    must not be among `restarts`: they chose the candidates, so they are too good. `earlier` are baseline restarts from
    before, which show how much starts scatter here.
    """
    names = list(dict.fromkeys(candidates))
    side_by_side = max(1, min(len(names), max_restarts // RESTARTS_EACH - 1))
    weights = [1.0 if rank < side_by_side else RESERVE_WEIGHT for rank in range(len(names))]
    over = len(restarts) >= max_restarts
    results = {
        name: _first_decision(
            prompts, relevant(restarts, name), alpha, min_effect, max_restarts, weight / sum(weights), over, earlier
        )
        for name, weight in zip(names, weights, strict=True)
    }
    aside = {name: "given up" for name in names if name in given_up}
    losing = (Outcome.WORSE, Outcome.NO_SIGNIFICANT_WIN)
    aside |= {n: r.outcome.value for n, r in results.items() if r.outcome in losing and n not in aside}
    aside |= _behind(prompts, [n for n in names if n not in aside], restarts)
    field_now = [n for n in names if n not in aside][:side_by_side]
    winner = _winner(results, [n for n in names if n not in given_up])
    settled = winner is not None and all(results[n].ratio <= results[winner].ratio for n in field_now)
    if over or settled or not field_now:
        return Confirmation(None, results, winner, aside)
    return Confirmation(_next_arm(field_now, restarts), results, winner, aside)


def relevant(restarts: Sequence[Restart], name: str) -> list[Restart]:
    """Return the restarts that judge one candidate, as a pair of arms.

    A candidate that joins late is compared with the baseline from just before its first start on: the host may have
    drifted since the older ones.
    """
    first = next((i for i, r in enumerate(restarts) if r.arm == name), len(restarts))
    before = max((i for i in range(first) if restarts[i].arm == BASELINE), default=0)
    pair = []
    for restart in restarts[before:]:
        if restart.arm == BASELINE:
            pair.append(restart)
        elif restart.arm == name:
            pair.append(Restart(CANDIDATE, restart.tok_s))
    return pair


def _first_decision(
    prompts: Sequence[str],
    pair: Sequence[Restart],
    alpha: float,
    min_effect: float,
    max_restarts: int,
    error_share: float,
    over: bool,
    earlier: Sequence[Restart],
) -> VerdictResult:
    """Judge as restart after restart came in; the first decision stands, since it has spent its error."""
    first = 0
    for arm in (BASELINE, CANDIDATE):  # nothing can be decided before both arms have two restarts
        places = [i for i, r in enumerate(pair) if r.arm == arm]
        first = max(first, places[1] + 1 if len(places) > 1 else len(pair))
    for end in range(first, len(pair) + 1):
        result = judge(
            prompts,
            pair[:end],
            alpha=alpha,
            min_effect=min_effect,
            max_restarts=max_restarts,
            error_share=error_share,
            last=over and end == len(pair),
            earlier=earlier,
        )
        if result.outcome is not Outcome.UNDECIDED:
            break
    return result


def _behind(prompts: Sequence[str], names: Sequence[str], restarts: Sequence[Restart]) -> dict[str, str]:
    """Return the candidates that are clearly slower than another one that is still in."""
    runs = {n: [r for r in restarts if r.arm == n] for n in names}
    behind: dict[str, str] = {}
    for name in names:
        for other in names:
            found = estimate(prompts, runs[other], runs[name]) if other != name else None
            if found is not None and found.log_ratio + found.bound(BEHIND_ERROR) < 0 and other not in behind:
                behind[name] = f"slower than {other}"
                break
    return behind


def _winner(results: Mapping[str, VerdictResult], names: Sequence[str]) -> str | None:
    won = [n for n in names if results[n].outcome is Outcome.WIN]
    return max(won, key=lambda n: results[n].ratio) if won else None


def _next_arm(names: Sequence[str], restarts: Sequence[Restart]) -> str:
    """Return the arm with the fewest restarts; rounds run forwards and backwards in turn, so that drift cancels."""
    pairs = {n: relevant(restarts, n) for n in names}
    counts = {n: sum(r.arm == CANDIDATE for r in pairs[n]) for n in names}
    baselines = min(sum(r.arm == BASELINE for r in pairs[n]) for n in names)
    arms = {BASELINE: baselines, **counts}
    least = min(arms.values())
    behind = [arm for arm, count in arms.items() if count == least]
    return behind[0] if least % 2 == 0 else behind[-1]
