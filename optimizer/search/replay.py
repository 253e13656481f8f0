"""Replays a search on a recorded table: what would it have found, in how many starts, with how many wasted?

Decides how a start is charged and what is reported. Ratchet's own search runs through `SearchStudy`, exactly as in a
night; `tpe-raw` is TPE as other tools use it: raw parameters, no conditions, no rules, failures told as FAIL.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import optuna
from optuna.trial import TrialState
from scipy.special import ndtr

from optimizer.errors import BadInput, Problem
from optimizer.search.canonical import Candidate, CanonicalSpace
from optimizer.search.distributions import distributions
from optimizer.search.policy import SpaceExhausted
from optimizer.search.sampler import CandidateSampler
from optimizer.search.study import Outcome, Result, SearchStudy, open_study
from optimizer.search.table import Restart

SAMPLERS = ("ratchet", "tpe", "tpe-raw", "gp", "random")
WITHIN = 0.02
AT = (5, 10, 20, 40)
MAX_UNRECORDED = 50
"""Raw suggestions in a row that a partial table does not have; they cost nothing, but must end some time."""

FINALISTS = 5
CONFIRM_STARTS = 24
"""Most fresh restarts of finalists and baseline before a winner is declared."""
DOUBT = 0.05
"""Probability of a finalist better by MIN_EFFECT below which no further restart is made."""
MIN_EFFECT = 0.01
"""What is not this much faster than the baseline is no win: the answer is then the baseline."""
INVALID = Restart(None, failed="invalid_flag")

Progress = Callable[[int, int], None]


class Recorded(Protocol):
    """What a search can be replayed on: a recorded table, or a synthetic landscape."""

    @property
    def name(self) -> str: ...
    @property
    def space(self) -> CanonicalSpace: ...
    @property
    def baseline(self) -> Candidate | None: ...
    @property
    def best(self) -> float: ...
    @property
    def servers(self) -> int: ...
    def draw(self, candidate: Candidate, rng: np.random.Generator) -> Restart: ...
    def true_speed(self, candidate: Candidate) -> float: ...


@dataclass
class Run:
    """One replayed search. `regrets` has the simple regret (0..1) after each start."""

    regrets: list[float] = field(default_factory=list)
    ask_ms: list[float] = field(default_factory=list)
    invalid: int = 0
    duplicate: int = 0
    failed: int = 0
    unrecorded: int = 0
    best_seen: float = 0.0
    picked_regret: float = 1.0
    """Of the winner as the search alone would pick it."""
    winner_regret: float = 1.0
    """Of the winner after fresh restarts of the finalists (others declare without)."""
    confirm_starts: int = 0

    def starts_to(self, regret: float) -> float:
        """Return the number of starts until the regret was that small; infinite when it never was."""
        return next((i for i, r in enumerate(self.regrets, start=1) if r <= regret), float("inf"))


def run(
    table: Recorded,
    sampler: str | Callable[[Any, int], CandidateSampler],
    *,
    budget: int,
    seeds: int,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Replay `seeds` searches of `budget` starts each and return the report.

    `sampler` is a name, or makes one for a table and a seed (for ablations).

    Raises:
        BadInput: no such sampler, or nothing to spend.
    """
    if isinstance(sampler, str) and sampler not in SAMPLERS:
        hint = f"one of {', '.join(SAMPLERS)}"
        raise BadInput(f"there is no sampler {sampler}", [Problem("--sampler", "no such sampler", sampler, hint)])
    if budget < 1 or seeds < 1:
        raise BadInput("budget and seeds must be at least 1")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    runs = []
    for seed in range(seeds):
        runs.append(one(table, sampler, budget, seed))
        if progress:
            progress(seed + 1, seeds)
    return report(table, sampler if isinstance(sampler, str) else "custom", budget, runs)


def one(table: Recorded, sampler: str | Callable[[Any, int], CandidateSampler], budget: int, seed: int) -> Run:
    """Replay one search."""
    return _raw(table, budget, seed) if sampler == "tpe-raw" else _canonical(table, sampler, budget, seed)


def _canonical(table: Recorded, sampler: Any, budget: int, seed: int) -> Run:
    """A search through the study's own code, the baseline first."""
    chosen = sampler if isinstance(sampler, str) else sampler(table, seed)
    study = open_study("memory", "replay", space=table.space, sampler=chosen, seed=seed)
    if table.baseline is not None:
        study.enqueue(table.baseline.params)
    rng = np.random.default_rng([seed, 1])
    done = Run()
    seen: set[str] = set()
    for _ in range(budget):
        begun = time.perf_counter()
        try:
            suggestion = study.ask()
        except SpaceExhausted:
            break
        done.ask_ms.append(1000 * (time.perf_counter() - begun))
        candidate = table.space.check(suggestion.params).candidate
        done.invalid += candidate is None
        done.duplicate += suggestion.canonical_key in seen
        seen.add(suggestion.canonical_key)
        restart = table.draw(candidate, rng) if candidate else INVALID
        study.tell(suggestion.number, _result(restart))
        _note(done, table, candidate, restart)
    _declare(done, table, study, rng, ours=not isinstance(chosen, str) or chosen == "ratchet")
    return done


def _raw(table: Recorded, budget: int, seed: int) -> Run:
    """TPE as other tools use it."""
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    spreads = distributions(table.space)
    rng = np.random.default_rng([seed, 1])
    done = Run()
    asked: dict[int, Candidate] = {}
    seen: set[str] = set()
    unrecorded = 0
    while len(done.regrets) < budget and unrecorded < MAX_UNRECORDED:
        begun = time.perf_counter()
        trial = study.ask(spreads)
        done.ask_ms.append(1000 * (time.perf_counter() - begun))
        candidate = table.space.check(trial.params).candidate
        if candidate is None and table.space.outside_pool(trial.params):
            study.tell(trial, state=TrialState.FAIL)
            done.unrecorded += 1
            unrecorded += 1
            continue
        unrecorded = 0
        restart = INVALID
        if candidate is None:
            done.invalid += 1
        else:
            restart = table.draw(candidate, rng)
            done.duplicate += candidate.key in seen
            seen.add(candidate.key)
            asked[trial.number] = candidate
        if restart.tok_s is None:
            study.tell(trial, state=TrialState.FAIL)
        else:
            study.tell(trial, restart.tok_s)
        _note(done, table, candidate, restart)
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    winner = asked[study.best_trial.number] if complete else None
    done.picked_regret = done.winner_regret = _regret(table, winner)
    return done


def _result(restart: Restart) -> Result:
    if restart.tok_s is None:
        return Result(None, Outcome.INFEASIBLE, failure=restart.failed)
    return Result(
        restart.tok_s,
        accept_len=restart.accept_len,
        step_ms=restart.step_ms,
        ready_s=restart.ready_s,
        bench_s=restart.bench_s,
    )


def _note(done: Run, table: Recorded, candidate: Candidate | None, restart: Restart) -> None:
    if restart.tok_s is None or candidate is None:
        done.failed += 1
    else:
        done.best_seen = max(done.best_seen, table.true_speed(candidate))
    done.regrets.append(1.0 - done.best_seen / table.best)


def _declare(done: Run, table: Recorded, study: SearchStudy, rng: np.random.Generator, *, ours: bool) -> None:
    """Declare the winner: others by their best number; ours by posterior, after restarts where it is undecided."""
    if not ours:
        complete = [o for o in study.history() if o.kind == "complete"]
        best = max(complete, key=lambda o: o.value or 0.0).params if complete else {}
        done.picked_regret = done.winner_regret = _regret(table, table.space.check(best).candidate)
        return
    finalists = {r.canonical_key: c for r in study.top(FINALISTS) if (c := table.space.check(r.params).candidate)}
    done.picked_regret = _regret(table, next(iter(finalists.values()), None))
    home = table.baseline
    if home is not None:
        finalists.setdefault(home.key, home)
    for _ in range(CONFIRM_STARTS):
        believed = _believed(study, finalists)
        key = _worth_a_restart(believed)
        if key is None:
            break
        candidate = finalists[key]
        done.confirm_starts += 1
        restart = table.draw(candidate, rng)
        study.add_observation(candidate.params, _result(restart))
        if restart.tok_s is None and candidate is not home:
            del finalists[candidate.key]
    believed = _believed(study, finalists)
    winner = finalists[max(believed, key=lambda key: believed[key][0])] if believed else None
    known_home = believed.get(home.key) if home is not None else None
    if winner is not None and known_home and believed[winner.key][0] < known_home[0] + math.log1p(MIN_EFFECT):
        winner = home
    done.winner_regret = _regret(table, winner)


def _believed(study: SearchStudy, finalists: Mapping[str, Candidate]) -> dict[str, tuple[float, float]]:
    """Posterior mean and standard deviation of the logarithm of the speed, by key."""
    ranked = study.top(len(study.study.get_trials(deepcopy=False)))
    return {
        r.canonical_key: (math.log(r.mean), math.log(r.high / r.mean)) for r in ranked if r.canonical_key in finalists
    }


def _worth_a_restart(believed: Mapping[str, tuple[float, float]]) -> str | None:
    """Of the best and of what is most likely to be better by MIN_EFFECT, the one that is known less; None when sure."""
    leader = max(believed, key=lambda key: believed[key][0], default="")

    def doubt(key: str) -> float:
        ahead = believed[leader][0] + math.log1p(MIN_EFFECT) - believed[key][0]
        return float(ndtr(-ahead / math.hypot(believed[key][1], believed[leader][1])))

    rival = max((key for key in believed if key != leader), key=doubt, default=None)
    if rival is None or doubt(rival) < DOUBT:
        return None
    return max(leader, rival, key=lambda key: believed[key][1])


def _regret(table: Recorded, candidate: Candidate | None) -> float:
    return 1.0 - (table.true_speed(candidate) if candidate else 0.0) / table.best


def report(table: Recorded, sampler: str, budget: int, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the report of some runs, as `ratchet replay --json` prints it."""
    starts = [r.starts_to(WITHIN) for r in runs]
    middle = statistics.median(starts)
    asks = [ms for r in runs for ms in r.ask_ms]
    winners = [r.winner_regret for r in runs]
    return {
        "table": table.name,
        "sampler": sampler,
        "budget": budget,
        "seeds": len(runs),
        "best_true": round(table.best, 4),
        "median_starts_to_2pct": middle if middle != float("inf") else None,
        "median_regret_pct": {str(n): _regret_at(runs, n) if n <= budget else None for n in AT},
        "never_within_2pct": sum(s == float("inf") for s in starts),
        "starts_wasted_invalid": _mean([r.invalid for r in runs]),
        "starts_wasted_duplicate": _mean([r.duplicate for r in runs]),
        "declared_winner_regret_pct": round(100 * statistics.median(winners), 3),
        "ask_ms_p50": round(float(np.percentile(asks, 50)), 2),
        "ask_ms_p99": round(float(np.percentile(asks, 99)), 2),
        "picked_before_confirming_regret_pct": round(100 * statistics.median(r.picked_regret for r in runs), 3),
        "confirm_starts": _mean([r.confirm_starts for r in runs]),
        "declared_winner_regret_pct_mean": round(100 * statistics.fmean(winners), 3),
        "starts_failed": _mean([r.failed for r in runs]),
        "servers": table.servers,
        "baseline_true": round(table.true_speed(table.baseline), 4) if table.baseline else None,
        "unrecorded": _mean([r.unrecorded for r in runs]),
    }


def _regret_at(runs: Sequence[Run], n: int) -> float:
    """Median regret after n starts, in percent; a search that had measured everything keeps its last.

    One that asked for nothing recorded (a partial table, raw parameters) has found nothing: 100 %.
    """
    return round(100 * statistics.median(r.regrets[:n][-1] if r.regrets else 1.0 for r in runs), 3)


def _mean(counts: Sequence[int]) -> float:
    """Starts per search, averaged over the seeds."""
    return round(statistics.fmean(counts), 3)
