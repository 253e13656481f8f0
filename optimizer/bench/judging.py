"""Whether a difference between two configurations is a win: pure statistics over recorded restarts.

Decides with a guaranteed bound on false wins, however often one looks. Which restarts are made next over several
candidates is `confirm.py`; docs/design/measurement.md explains the method and benchmarks/verdict proves its error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from scipy.special import stdtrit

from optimizer.bench.base import Outcome, VerdictResult
from optimizer.errors import BadInput, Problem

WIN_SHARE = 0.2
"""Share of alpha that may be spent on false wins; the rest bounds the other end of the interval. A false win replaces
a server that works, a false "worse" costs one candidate: at alpha 5 % at most 1 % of studies may end in a false win."""
FUTILITY_ERROR = 0.1
"""A candidate is given up when the one-sided 90 % bound of its gain is below the least effect that counts. Giving up
early cannot cause a false win, so this needs no share of alpha."""
FIRST_LOOK = 3
"""Restarts per arm before anything can be won, unless the budget has fewer. A host that starts fast or slow by chance
(memory placement, clock states) makes both starts of each arm agree by luck once in sixteen times."""
LOOK_WEIGHTS = {2: 0.05, 3: 0.20, 4: 0.30, 5: 0.30, 6: 0.20, 7: 0.15, 8: 0.15}
"""Error spent on the look with n restarts per arm: most decisions fall between three and six. Beyond 8 the weights fall
as `TAIL / n**2`."""
TAIL = 4.0
HORIZON = 200
"""Restarts per arm over which the error is spread when no budget is given."""
ODD_SHARE = 0.1
"""Share of a look's error for the moment at which one arm is a restart ahead."""
LEAST_SD_LOG = 0.001
"""Restarts agree to 0.1 % at best: a smaller sample deviation is luck or rounding."""
SLOWEST_TOK_S, FASTEST_TOK_S = 1e-6, 1e9
"""What is beyond is no speed but a mistake of unit or a broken clock."""
MOST_LOG = 700.0
"""The largest logarithm whose number a float can hold."""
BASELINE, CANDIDATE, STOP = "baseline", "candidate", "stop"


@dataclass(frozen=True)
class Restart:
    """One fresh start of one arm: tok/s by prompt, one value for each repeat."""

    arm: str
    tok_s: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Estimate:
    """The log ratio of candidate to baseline, its standard error and its degrees of freedom (Welch)."""

    log_ratio: float
    error: float
    freedom: float

    pooled_error: float
    """The same with one variance for both arms, from all baseline restarts there are, the earlier ones too."""
    pooled_freedom: float

    def bound(self, error_share: float) -> float:
        """Return the half width of the interval that is missed on one side with probability `error_share`.

        The wider of two: by the arms' own scatter (Welch), and by what all starts on this host show. Few restarts that
        agree by luck are no evidence against a host whose starts are known to differ.
        """
        if error_share <= 0:
            return math.inf
        own = float(-stdtrit(self.freedom, error_share)) * self.error
        return max(own, float(-stdtrit(self.pooled_freedom, error_share)) * self.pooled_error)


def judge(
    prompts: Sequence[str],
    restarts: Sequence[Restart | Mapping[str, Any]],
    *,
    alpha: float = 0.05,
    min_effect: float = 0.01,
    max_restarts: int | None = None,
    error_share: float = 1.0,
    last: bool = False,
    earlier: Sequence[Restart] = (),
) -> VerdictResult:
    """Judge one candidate against the baseline by all their restarts so far, in the order they were made.

    `restarts` has both arms. `max_restarts` is the budget over both arms, fixed in advance (None: open). `error_share`
    is this candidate's part of alpha when several are judged. `last` says that no further restart is possible although
    the budget is not reached. `earlier` are baseline restarts from before: they are compared with nothing and only
    tell how much starts scatter here. The interval holds at all looks together with probability 1 - alpha.

    Raises:
        BadInput: a number is out of range, or a restart has no positive value for any of the prompts.
    """
    runs = read_restarts(restarts)
    _check(prompts, runs, alpha, min_effect, error_share)
    arms = {arm: [r for r in runs if r.arm == arm] for arm in (BASELINE, CANDIDATE)}
    spent = last or (max_restarts is not None and len(runs) >= max_restarts)
    following = STOP if spent else next_arm(len(arms[BASELINE]), len(arms[CANDIDATE]))
    found = estimate(prompts, arms[BASELINE], arms[CANDIDATE], earlier)
    if found is None:
        ratio = math.exp(difference) if (difference := _difference(prompts, arms)) is not None else 1.0
        return VerdictResult(Outcome.UNDECIDED, ratio, 0.0, math.inf, len(runs), following, 1 - alpha)
    share = look_share(len(arms[BASELINE]), len(arms[CANDIDATE]), max_restarts) * error_share
    low = found.log_ratio - found.bound(alpha * WIN_SHARE * share)
    high = found.log_ratio + found.bound(alpha * (1 - WIN_SHARE) * share)
    outcome = _outcome(found, low, high, math.log1p(min_effect), spent)
    if outcome is not Outcome.UNDECIDED:
        following = STOP
    numbers = (math.exp(found.log_ratio), math.exp(low), math.exp(high) if high < MOST_LOG else math.inf)
    return VerdictResult(outcome, *numbers, len(runs), following, 1 - alpha)


def _outcome(found: Estimate, low: float, high: float, least: float, spent: bool) -> Outcome:
    if low > 0 and found.log_ratio >= least:
        return Outcome.WIN
    if high < 0:
        return Outcome.WORSE
    hopeless = found.log_ratio + found.bound(FUTILITY_ERROR) < least
    if high < least or hopeless or (spent and found.log_ratio < least):
        return Outcome.NO_SIGNIFICANT_WIN
    return Outcome.UNDECIDED


def next_arm(baselines: int, candidates: int) -> str:
    """Return the arm to restart next so that the order is A B B A A B B A: a steady drift then cancels."""
    if baselines != candidates:
        return BASELINE if baselines < candidates else CANDIDATE
    return BASELINE if baselines % 2 == 0 else CANDIDATE


def look_share(baselines: int, candidates: int, max_restarts: int | None) -> float:
    """Return the share of the error that may be spent at this look. Over all looks of a study they sum to at most 1.

    A look is known by the total number of restarts, which passes every number once whatever the order of the arms.
    """
    total = baselines + candidates
    most = max(2, (HORIZON * 2 if max_restarts is None else max_restarts) // 2)
    first = min(FIRST_LOOK, most)
    number = min(total // 2, most)
    if number < first:
        return 0.0
    weights = sum(_weight(n) for n in range(first, most + 1))
    odd = total % 2 == 1
    return _weight(number) / weights * (ODD_SHARE if odd else 1 - ODD_SHARE)


def _weight(number: int) -> float:
    return LOOK_WEIGHTS.get(number, TAIL / number**2)


def estimate(
    prompts: Sequence[str],
    baseline: Sequence[Restart],
    candidate: Sequence[Restart],
    earlier: Sequence[Restart] = (),
) -> Estimate | None:
    """Compare two arms with restarts as the unit; None with fewer than two restarts in an arm.

    One value stands for each restart: the mean over prompts of the log of its speed. Only prompts that every restart
    has are used, so a prompt's own speed cancels. The arms may differ in variance (Welch).
    """
    common = common_prompts(prompts, [*baseline, *candidate])
    if min(len(baseline), len(candidate)) < 2 or not common:
        return None
    before = [_log_speed(r, common) for r in earlier if common_prompts(common, [r]) == common]
    logs = [[_log_speed(r, common) for r in arm] for arm in (baseline, candidate)]
    means = [sum(values) / len(values) for values in logs]
    parts = [(_variance(values) / len(values), len(values) - 1) for values in logs]
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / df for part, df in parts)
    steps, own = len(before) + len(logs[0]) - 1, len(logs[1]) - 1
    pooled = (steps * _neighbour_variance([*before, *logs[0]]) + own * _variance(logs[1])) / (steps + own)
    pooled_error = math.sqrt(pooled * sum(1 / len(values) for values in logs))
    return Estimate(means[1] - means[0], math.sqrt(total), freedom, pooled_error, steps + own)


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return max(sum((v - mean) ** 2 for v in values) / (len(values) - 1), LEAST_SD_LOG**2)


def _neighbour_variance(values: Sequence[float]) -> float:
    """Return the variance by the differences of neighbours in time: a slow drift through the night is not in it."""
    steps = sum((b - a) ** 2 for a, b in pairwise(values)) / 2
    return max(steps / (len(values) - 1), LEAST_SD_LOG**2)


def common_prompts(prompts: Sequence[str], restarts: Sequence[Restart]) -> list[str]:
    """Return the prompts for which every restart has a value above zero."""
    return [p for p in prompts if all(any(v > 0 for v in r.tok_s.get(p, ())) for r in restarts)]


def prompt_ratios(prompts: Sequence[str], restarts: Sequence[Restart]) -> dict[str, float]:
    """Return the ratio of candidate to baseline on each prompt that all restarts have."""
    arms = {arm: [r for r in restarts if r.arm == arm] for arm in (BASELINE, CANDIDATE)}
    differences = {p: _difference([p], arms) for p in common_prompts(prompts, restarts)}
    return {p: math.exp(d) for p, d in differences.items() if d is not None}


def carried_by_one(ratios: Mapping[str, float], min_effect: float) -> str:
    """Return a caveat when the gain is that of a single prompt, empty when others share it.

    Such a win is one for this workload, as defined: but its owner must know what it rests on.
    """
    if len(ratios) < 2:
        return ""
    best = max(ratios, key=lambda p: ratios[p])
    others = [math.log(r) for p, r in ratios.items() if p != best]
    rest = math.exp(sum(others) / len(others))
    if rest >= 1 + min_effect:
        return ""
    return f"the gain is that of one prompt ({best}: {ratios[best] - 1:+.1%}); over the others it is {rest - 1:+.1%}"


def _log_speed(restart: Restart, prompts: Sequence[str]) -> float:
    logs = []
    for prompt in prompts:
        values = [math.log(v) for v in restart.tok_s[prompt] if v > 0]
        logs.append(sum(values) / len(values))
    return sum(logs) / len(logs)


def _difference(prompts: Sequence[str], arms: Mapping[str, Sequence[Restart]]) -> float | None:
    """Return the log ratio of what there is, when there is too little for an interval."""
    both = [arms[BASELINE], arms[CANDIDATE]]
    common = common_prompts(prompts, [r for arm in both for r in arm])
    if not all(both) or not common:
        return None
    means = [sum(_log_speed(r, common) for r in arm) / len(arm) for arm in both]
    return means[1] - means[0]


def read_restarts(given: Sequence[Restart | Mapping[str, Any]]) -> list[Restart]:
    """Return recorded restarts as such.

    Raises:
        BadInput: one of them is none; the first mistake is told.
    """
    return [_as_restart(one, index) for index, one in enumerate(given)]


def _as_restart(given: Restart | Mapping[str, Any], index: int) -> Restart:
    if isinstance(given, Restart):
        return given
    where = f"restarts[{index}]"
    if not isinstance(given, Mapping) or given.get("arm") not in (BASELINE, CANDIDATE):
        arm = given.get("arm") if isinstance(given, Mapping) else given
        raise BadInput(
            "the restarts cannot be judged", [Problem(f"{where}.arm", "is not known", arm, "baseline or candidate")]
        )
    tok_s = given.get("tok_s")
    if not isinstance(tok_s, Mapping) or not tok_s:
        raise BadInput(
            "the restarts cannot be judged", [Problem(f"{where}.tok_s", "must map prompts to values", tok_s)]
        )
    return Restart(given["arm"], {str(p): _values(v, f"{where}.tok_s.{p}") for p, v in tok_s.items()})


def _values(given: Any, where: str) -> tuple[float, ...]:
    values = given if isinstance(given, list | tuple) else [given]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and _is_speed(v) for v in values):
        told = f"must be 0 or from {SLOWEST_TOK_S:g} to {FASTEST_TOK_S:g}"
        raise BadInput("the restarts cannot be judged", [Problem(where, told, given)])
    return tuple(float(v) for v in values)


def _is_speed(value: float) -> bool:
    return value == 0 or SLOWEST_TOK_S <= value <= FASTEST_TOK_S


def _check(
    prompts: Sequence[str], restarts: Sequence[Restart], alpha: float, min_effect: float, error_share: float
) -> None:
    problems = []
    if not 0 < alpha < 0.5:
        problems.append(Problem("alpha", "must be between 0 and 0.5", alpha))
    if not 0 <= min_effect <= 1:
        problems.append(Problem("min_effect", "must be between 0 and 1", min_effect, "0.01 is one per cent"))
    if not 0 < error_share <= 1:
        problems.append(Problem("error_share", "must be above 0 and at most 1", error_share))
    if len(set(prompts)) < len(prompts):
        problems.append(Problem("prompts", "names a prompt twice", list(prompts)))
    if restarts and not prompts:
        problems.append(Problem("prompts", "must name at least one prompt", list(prompts)))
    if restarts and prompts and not common_prompts(prompts, restarts):
        problems.append(
            Problem("restarts", "have no prompt in common with a value above 0", None, "leave failed restarts out")
        )
    if problems:
        raise BadInput("the restarts cannot be judged", problems)
