"""What ending losing measurements early saves on a recorded table, and whether it changes who is found best.

Each run explores configurations in a random order, one recorded restart each; the incumbent is the best so far. Seconds
are those of the recorded answers.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from pathlib import Path

from optimizer.bench.derive import geometric_mean
from optimizer.bench.early import standing

TOKENS = 96
"""Tokens of each recorded answer."""


def report(table: Path, *, runs: int, explored: int, seed: int) -> None:
    """Print seconds saved and winners changed over `runs` runs."""
    restarts = read(table)
    rng = random.Random(seed)
    keys = list(restarts)
    whole_s = kept_s = 0.0
    ended = changed = lost = 0
    for _ in range(runs):
        drawn = [(key, rng.choice(restarts[key])) for key in rng.sample(keys, min(explored, len(keys)))]
        best_whole = max(drawn, key=lambda item: geometric_mean(item[1].values()))[0]
        best_key, best = drawn[0]
        whole_s += seconds(best)
        kept_s += seconds(best)
        for key, speeds in drawn[1:]:
            measured = until_hopeless(speeds, best)
            whole_s += seconds(speeds)
            kept_s += seconds(measured)
            ended += len(measured) < len(speeds)
            lost += len(measured) < len(speeds) and geometric_mean(speeds.values()) > geometric_mean(best.values())
            if len(measured) == len(speeds) and geometric_mean(speeds.values()) > geometric_mean(best.values()):
                best_key, best = key, speeds
        changed += best_key != best_whole
    trials = runs * (min(explored, len(keys)) - 1)
    print(f"{runs} runs of {min(explored, len(keys))} configurations from {table.name}")
    saved = 1 - kept_s / whole_s
    print(f"measuring: {whole_s / runs:.0f} s a run, {kept_s / runs:.0f} s with early ends ({saved:.0%} saved)")
    print(f"ended early: {ended / trials:.0%} of the measurements; {lost} of them would have beaten the incumbent")
    print(f"another winner than without early ends: {changed} of {runs} runs")


def until_hopeless(speeds: dict[str, float], incumbent: dict[str, float]) -> dict[str, float]:
    """Return the prompts that are measured before the rest is skipped."""
    measured: dict[str, float] = {}
    for prompt, value in speeds.items():
        measured[prompt] = value
        if standing(measured, incumbent).hopeless:
            break
    return measured


def seconds(speeds: dict[str, float]) -> float:
    """Return how long the answers take."""
    return sum(TOKENS / v for v in speeds.values())


def read(table: Path) -> dict[tuple[str, ...], list[dict[str, float]]]:
    """Return the speeds by prompt of every complete restart, by configuration."""
    found: dict[tuple[str, ...], list[dict[str, float]]] = defaultdict(list)
    with table.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            speeds = {k: float(v) for k, v in row.items() if k.startswith("tok_s.") and v}
            if row.get("tok_s") and speeds:
                found[tuple(v for k, v in row.items() if k.startswith("p."))].append(speeds)
    return dict(found)
