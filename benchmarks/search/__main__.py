"""Reprints every claim about the search: recorded tables, synthetic landscapes, an ablation, the time of a suggestion.

Recorded tables carry the claims; synthetic landscapes (marked so) are for development. Results repeat exactly, except
for times. `--write` puts them into docs/design/search.md.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna

from benchmarks import landscapes
from benchmarks.search import ask_time
from optimizer.search import replay
from optimizer.search.gp import Prior
from optimizer.search.policy import Options
from optimizer.search.sampler import RatchetSampler
from optimizer.search.table import load

TABLES = Path(__file__).parent.parent / "tables"
DOCUMENT = Path(__file__).parents[2] / "docs" / "design" / "search.md"
BUDGETS = {"ratchet": 60, "tpe-raw": 180, "tpe": 60, "random": 180}
"""Starts per search; the cheap others get more, so that their own median is known where they have one."""
OFF = (-10.0, 0.01)
"""Prior of an amplitude that is held at next to nothing."""
ABLATION: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "no model of failures": {"feasibility": "none"},
    "no pairs of flags": {"prior": Prior(pairs=OFF)},
    "no own deviation": {"prior": Prior(own_cv=OFF)},
    "single flags and all at once only": {"prior": Prior(pairs=OFF, own_cv=OFF)},
    "one process only": {"parts": "never"},
    "two parts always": {"parts": "always"},
    "first starts at random": {"design": "random"},
    "first starts one flag from home": {"design": "probes", "design_size": 8},
    "the model at once": {"design_size": 1},
    "neighbours of the best only": {"reach": 1},
}
ABLATED_ON = ("llamacpp-smollm2", "llamacpp-smollm2-short", "synthetic eagle3")


@dataclass(frozen=True)
class Job:
    """One search on one subject."""

    subject: str
    sampler: str
    budget: int
    seed: int
    change: dict[str, Any] = field(default_factory=dict)


@functools.cache
def subject(name: str) -> replay.Recorded:
    """Return a recorded table, or a landscape, by its name."""
    if name.startswith("synthetic "):
        return landscapes.ALL[name.removeprefix("synthetic ")]()
    return load(TABLES / f"{name}.csv")


def subjects() -> list[str]:
    """Names of everything a search is replayed on."""
    return [*(p.stem for p in sorted(TABLES.glob("*.csv"))), *(f"synthetic {name}" for name in landscapes.ALL)]


def search(job: Job) -> replay.Run:
    """Replay one search."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    on = subject(job.subject)
    if not job.change:
        return replay.one(on, job.sampler, job.budget, job.seed)
    options = replace(Options(), **job.change)
    return replay.one(
        on, lambda table, seed: RatchetSampler(table.space, seed=seed, options=options), job.budget, job.seed
    )


def rows(pool: ProcessPoolExecutor, runs: Sequence[tuple[str, Job]], seeds: int) -> list[str]:
    """Replay `seeds` searches of each and return the lines of a table; what is done is told on the way."""
    lines = [HEADER]
    for label, job in runs:
        done = list(pool.map(search, [replace(job, seed=seed) for seed in range(seeds)]))
        lines.append(_line(job.subject, label, replay.report(subject(job.subject), job.sampler, job.budget, done)))
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


HEADER = (
    "| on | sampler | searches | starts | to 2 % | never | regret % at 5 / 10 / 20 / 40 | invalid | repeats | failed"
    " | picked % | declared % | confirming |\n|" + "---|" * 13
)


def _line(name: str, label: str, report: dict[str, Any]) -> str:
    starts = report["median_starts_to_2pct"]
    regrets = " / ".join("-" if r is None else f"{r:.1f}" for r in report["median_regret_pct"].values())
    cells = [
        name, label, report["seeds"], report["budget"], "never" if starts is None else f"{starts:g}",
        report["never_within_2pct"], regrets, f"{report['starts_wasted_invalid']:.1f}",
        f"{report['starts_wasted_duplicate']:.1f}", f"{report['starts_failed']:.1f}",
        f"{report['picked_before_confirming_regret_pct']:.2f}", f"{report['declared_winner_regret_pct']:.2f}",
        f"{report['confirm_starts']:.0f}",
    ]  # fmt: skip
    return "| " + " | ".join(str(c) for c in cells) + " |"


def main() -> None:
    """Run the parts that were asked for and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks search", description=__doc__)
    parser.add_argument("--seeds", type=int, default=30, help="searches of each kind")
    parser.add_argument("--only", default="", help="part of the name of a table or landscape")
    parser.add_argument("--sampler", default=",".join(BUDGETS))
    parser.add_argument("--part", default="results,ablation,ask", help="any of results, ablation, ask")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/design/search.md")
    chosen = parser.parse_args()
    names = [name for name in subjects() if chosen.only in name]
    samplers = [(s, Job("", s, BUDGETS[s], 0)) for s in chosen.sampler.split(",")]
    parts: dict[str, Callable[[ProcessPoolExecutor], list[str]]] = {
        "results": lambda pool: rows(
            pool, [(label, replace(job, subject=name)) for name in names for label, job in samplers], chosen.seeds
        ),
        "ablation": lambda pool: rows(
            pool,
            [
                (label, Job(name, "ratchet", 40, 0, change))
                for name in names
                if name in ABLATED_ON
                for label, change in ABLATION.items()
            ],
            chosen.seeds,
        ),
        "ask": lambda pool: ask_time.lines(),
    }
    with ProcessPoolExecutor(chosen.workers) as pool:
        for part in chosen.part.split(","):
            text = "\n".join(parts[part](pool))
            print(text, flush=True)
            if chosen.write:
                write(part, text)


def write(part: str, text: str) -> None:
    """Replace what stands between the marks of a part in the document."""
    begin, end = f"<!-- {part} -->\n", f"\n<!-- end of {part} -->"
    old = DOCUMENT.read_text(encoding="utf-8")
    new = re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{text}\n{end}", old, flags=re.DOTALL)
    DOCUMENT.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
