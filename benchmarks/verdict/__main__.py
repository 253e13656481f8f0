"""False wins and power of the verdict beside the rules that are usual, by simulation and on a recorded table."""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import beta

from benchmarks.verdict import early_end
from benchmarks.verdict.studies import (
    TOP,
    Source,
    best_beats,
    explore,
    ranking,
    ratchet,
    recorded_residuals,
    t_test_within,
)

WITHIN = (0.01, 0.03, 0.10)
BETWEEN = (0.01, 0.03, 0.05)
MODES = (0.05, 0.20)
"""Gaps of a host whose starts are fast or slow by chance (placement of memory, states of clocks)."""
GAINS = (0.02, 0.05, 0.10)
EXPLORED = 20
TABLES = Path(__file__).parents[1] / "tables"
Make = Callable[[np.random.Generator], Source]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks verdict", description=__doc__)
    parser.add_argument("--studies", type=int, default=1000, help="null studies for each cell (default 1000)")
    parser.add_argument("--power-studies", type=int, default=200, help="studies for each cell of the power table")
    parser.add_argument("--budget", type=int, default=10, help="confirming restarts of a study, all arms together")
    parser.add_argument("--power-budgets", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument(
        "--table",
        type=Path,
        nargs="+",
        help="only these recorded tables (default: simulated noise, then all)",
    )
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    begun = time.monotonic()
    if not asked.table:
        rng = np.random.default_rng(asked.seed)
        cells = [(f"{w:.0%} / {b:.0%}", Source(rng, w, b)) for w in WITHIN for b in BETWEEN]
        cells += [(f"1% / fast or slow {m:.0%}", Source(rng, 0.01, 0.002, modes=m)) for m in MODES]
        _false_wins(cells, asked)
        noises = ((0.01, 0.01), (0.03, 0.01), (0.03, 0.03), (0.10, 0.03))
        _power([(f"{w:.0%} / {b:.0%}", lambda rng, w=w, b=b: Source(rng, w, b)) for w, b in noises], asked)
    for table in asked.table or sorted(TABLES.glob("*.csv")):
        residuals = recorded_residuals(table)
        spread = residuals.mean(axis=1).std(ddof=1)
        print(f"\nThe noise of {table.name}: {len(residuals)} repeated restarts, {spread:.2%} between restarts\n")
        _false_wins([("recorded", Source(np.random.default_rng(asked.seed), residuals=residuals))], asked)
        _power([("recorded", lambda rng, found=residuals: Source(rng, residuals=found))], asked)
        early_end.report_table(table, runs=200, explored=40, seed=asked.seed)
    print(f"\n{time.monotonic() - begun:.0f} s")


RULES = ("ratchet", "best", "margin", "t-test")


def _false_wins(cells: list[tuple[str, Source]], asked: argparse.Namespace) -> None:
    print(f"False wins in {asked.studies} studies of {EXPLORED} configurations that all equal the baseline")
    print(f"(alpha 5 %, so at most 1 % may be false wins; {asked.budget} confirming restarts)")
    print("best: the best number beats the baseline's; margin: by 3 %; t-test: of repeats within one server start\n")
    _row("CV within / between", *RULES, "restarts")
    total: Counter[str] = Counter()
    for name, source in cells:
        false: Counter[str] = Counter()
        used = 0
        for _ in range(asked.studies):
            effects = [0.0] * EXPLORED
            baselines, seen = explore(source, effects)
            baseline = baselines[0]
            ended = ratchet(source, effects, baselines, seen, asked.budget)
            used += ended.restarts
            false["ratchet"] += ended.winner is not None
            false["best"] += best_beats(baseline, seen, 0.0) is not None
            false["margin"] += best_beats(baseline, seen, 0.03) is not None
            false["t-test"] += t_test_within(baseline, seen) is not None
        total += false
        _row(name, *(f"{false[rule] / asked.studies:.2%}" for rule in RULES), f"{used / asked.studies:.1f}")
    count = asked.studies * len(cells)
    wrong = total["ratchet"]
    print(
        f"\nall cells: {wrong} false wins in {count} studies: {wrong / count:.2%}, at most {_upper(wrong, count):.2%}"
    )
    print("(one-sided 95 % Clopper-Pearson)\n")


def _row(name: str, *cells: str) -> None:
    print(f"{name:>20s} " + " ".join(f"{cell:>9s}" for cell in cells))


def _upper(hits: int, count: int) -> float:
    """Upper end of the one-sided 95 % Clopper-Pearson interval."""
    return float(beta.ppf(0.95, hits + 1, count - hits))


def _power(cells: list[tuple[str, Make]], asked: argparse.Namespace) -> None:
    print(f"Power: one of {EXPLORED} configurations is truly faster, {asked.power_studies} studies each.")
    print(
        "found: the faster one is declared the winner; wrong: another one; missed: not among the top 3 after exploring"
    )
    print("covered: the winner's interval holds the true ratio\n")
    _row("CV within / between", "gain", "budget", "found", "wrong", "missed", "restarts", "covered")
    for name, make in cells:
        for gain in GAINS:
            for budget in asked.power_budgets:
                source = make(np.random.default_rng(asked.seed))
                _row(name, f"{gain:.0%}", str(budget), *_power_of(source, gain, budget, asked.power_studies))


def _power_of(source: Source, gain: float, budget: int, studies: int) -> list[str]:
    faster = EXPLORED - 1
    effects = [0.0] * faster + [math.log1p(gain)]
    found = wrong = missed = used = covered = 0
    for _ in range(studies):
        baselines, seen = explore(source, effects)
        missed += faster not in ranking(seen)[:TOP]
        ended = ratchet(source, effects, baselines, seen, budget)
        used += ended.restarts
        if ended.winner is not None:
            found += ended.winner == faster
            wrong += ended.winner != faster
            covered += ended.low <= math.exp(effects[ended.winner]) <= ended.high
    cover = f"{covered / (found + wrong):.0%}" if found + wrong else "-"
    shares = [f"{n / studies:.1%}" for n in (found, wrong, missed)]
    return [*shares, f"{used / studies:.1f}", cover]


if __name__ == "__main__":
    main()
