"""Reprints every claim about the search: `python -m benchmarks.search [--quick] [--only NAME] [--ablation]`.

Recorded tables carry the claims; synthetic landscapes (marked so) are for development. Results are deterministic except
for the ask times.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import landscapes
from optimizer.search import replay
from optimizer.search.policy import Options
from optimizer.search.sampler import RatchetSampler
from optimizer.search.table import load

TABLES = Path(__file__).parent.parent / "tables"
BUDGETS = {"ratchet": 60, "tpe-raw": 240, "tpe": 120, "random": 240}
"""Starts per search; the others get more, so that their own median is known where they have one."""
ABLATION: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "no feasibility model": {"feasibility": "none"},
    "one process only": {"parts": "never"},
    "two parts always": {"parts": "always"},
    "first starts at random": {"design": "random"},
    "first starts one flag from home": {"design": "probes", "design_size": 8},
    "no first starts (model at once)": {"design_size": 1},
    "neighbours of the best only": {"reach": 1},
}


def subjects() -> dict[str, Callable[[], replay.Recorded]]:
    """Everything a search is replayed on, by name."""
    found: dict[str, Callable[[], replay.Recorded]] = {
        path.stem: (lambda path=path: load(path)) for path in sorted(TABLES.glob("*.csv"))
    }
    return {**found, **{f"synthetic {name}": make for name, make in landscapes.ALL.items()}}


def main() -> None:
    """Replay, print a table, and one JSON line per report with --json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 searches instead of 30")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the name of a table or landscape")
    parser.add_argument("--sampler", default="ratchet,tpe-raw,tpe,random")
    parser.add_argument("--budget", type=int, default=0)
    parser.add_argument("--ablation", action="store_true", help="ratchet with parts taken away")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    seeds = chosen.seeds or (5 if chosen.quick else 30)
    print(HEADER)
    for name, make in subjects().items():
        if chosen.only not in name:
            continue
        subject = make()
        runs: dict[str, Any] = {s: s for s in chosen.sampler.split(",")}
        if chosen.ablation:
            runs = {label: _without(change) for label, change in ABLATION.items()}
        for label, sampler in runs.items():
            budget = chosen.budget or (60 if chosen.ablation else BUDGETS[label])
            report = replay.run(subject, sampler, budget=budget, seeds=seeds)
            print(_line(name, label, report), flush=True)
            if chosen.json:
                print(json.dumps(report), file=sys.stderr)


def _without(change: dict[str, Any]) -> Callable[[Any, int], RatchetSampler]:
    options = replace(Options(), **change)
    return lambda table, seed: RatchetSampler(table.space, seed=seed, options=options)


HEADER = (
    "| on | sampler | seeds | starts | to 2 % | never | regret % at 5 / 10 / 20 / 40 | invalid | repeats | failed"
    " | winner % | picked % | ask ms p50 / p99 |\n|" + "---|" * 13
)


def _line(name: str, label: str, report: dict[str, Any]) -> str:
    starts = report["median_starts_to_2pct"]
    regrets = " / ".join("-" if r is None else f"{r:.1f}" for r in report["median_regret_pct"].values())
    cells = [
        name, label, report["seeds"], report["budget"], "never" if starts is None else f"{starts:g}",
        report["never_within_2pct"], regrets, report["starts_wasted_invalid"], report["starts_wasted_duplicate"],
        report["starts_failed"], f"{report['declared_winner_regret_pct']:.2f}",
        f"{report['picked_before_confirming_regret_pct']:.2f}",
        f"{report['ask_ms_p50']:.0f} / {report['ask_ms_p99']:.0f}",
    ]  # fmt: skip
    return "| " + " | ".join(str(c) for c in cells) + " |"


if __name__ == "__main__":
    main()
