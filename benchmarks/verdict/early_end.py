"""What ending losing measurements early saves, and whether it changes who is found best.

    python -m benchmarks.verdict.early_end --table TABLE.csv         on recorded restarts, 200 random orders
    python -m benchmarks.verdict.early_end --real 10 --out FILE      whole studies on the demo's real llama-server,
                                                                     each once with early ends and once without

The seconds are those of the answers. Stopped and started again, `--real` goes on after the last whole line of the file.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from api.demo.stage import Stage, build_spec
from benchmarks.verdict.real import Row, keep, rows_of, run_study
from optimizer.bench.base import Outcome
from optimizer.bench.derive import geometric_mean
from optimizer.bench.early import standing
from optimizer.spec import StudySpec
from storage import measurements, trials
from storage.engine import Database
from storage.records import StudyRecord

TOKENS = 64
"""Tokens of each answer in a recorded table; only shares of time are told of it."""


@dataclass(frozen=True)
class Measured:
    """One whole measurement: speed and seconds of each prompt, in the order in which they were asked."""

    key: Hashable
    tok_s: dict[str, float]
    seconds: dict[str, float]

    @property
    def speed(self) -> float:
        """The objective."""
        return geometric_mean(self.tok_s.values())


@dataclass
class Replayed:
    """What early ends would have made of a row of whole measurements."""

    whole_s: float = 0.0
    kept_s: float = 0.0
    ended: int = 0
    lost: int = 0
    """Ended, although the whole measurement beats the incumbent of its time."""
    same_best: bool = True


def replay(measured: Sequence[Measured]) -> Replayed:
    """Go through whole measurements in order, the first being the first incumbent, and end the hopeless ones."""
    best, found = measured[0], Replayed()
    for number, one in enumerate(measured):
        kept = until_hopeless(one, best) if number else list(one.tok_s)
        ended = len(kept) < len(one.tok_s)
        found.whole_s += sum(one.seconds.values())
        found.kept_s += sum(one.seconds[p] for p in kept)
        found.ended += ended
        found.lost += ended and one.speed > best.speed
        if not ended and one.speed > best.speed:
            best = one
    found.same_best = best.key == max(measured, key=lambda one: one.speed).key
    return found


def until_hopeless(one: Measured, incumbent: Measured) -> list[str]:
    """Return the prompts that are measured before the rest is skipped."""
    kept: dict[str, float] = {}
    for prompt, value in one.tok_s.items():
        kept[prompt] = value
        if standing(kept, incumbent.tok_s).hopeless:
            break
    return list(kept)


def report_table(table: Path, *, runs: int, explored: int, seed: int) -> None:
    """Print seconds saved and winners changed over `runs` random orders of a table's configurations."""
    restarts, rng = read_table(table), random.Random(seed)
    keys = list(restarts)
    count = min(explored, len(keys))
    found = [replay([rng.choice(restarts[key]) for key in rng.sample(keys, count)]) for _ in range(runs)]
    whole, kept = (sum(getattr(r, name) for r in found) for name in ("whole_s", "kept_s"))
    print(f"{runs} runs of {count} configurations from {table.name}")
    print(f"measuring time saved: {1 - kept / whole:.0%}")
    print(f"ended early: {sum(r.ended for r in found) / (runs * (count - 1)):.0%} of the measurements;", end=" ")
    print(f"{sum(r.lost for r in found)} of them would have beaten the incumbent")
    print(f"another best one than without early ends: {sum(not r.same_best for r in found)} of {runs} runs")


def read_table(table: Path) -> dict[Hashable, list[Measured]]:
    """Return every complete restart of a recorded table, by configuration."""
    found: dict[Hashable, list[Measured]] = defaultdict(list)
    with table.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            speeds = {k: float(v) for k, v in row.items() if k.startswith("tok_s.") and v}
            if row.get("tok_s") and speeds:
                key = tuple(v for k, v in row.items() if k.startswith("p."))
                found[key].append(Measured(key, speeds, {p: TOKENS / v for p, v in speeds.items()}))
    return dict(found)


def report_real(asked: argparse.Namespace) -> None:
    """Run what is missing of the pairs of studies, and compare them."""
    rows = rows_of(asked.out)
    for number in range(asked.real):
        for early in (True, False) if number % 2 else (False, True):
            if not any(r["run"] == number and r["early_end"] is early for r in rows):
                row = run_study(lambda stage, n=number, e=early: spec_of(stage, asked, n, e), read)  # type: ignore[misc]
                rows.append({"run": number, "early_end": early, **row})
                keep(asked.out, rows[-1])
    on, off = ([r for r in rows if r["early_end"] is early] for early in (True, False))
    print(f"\n{'run':>4s} {'winner, whole':>24s} {'winner, early ends':>24s} {'same':>10s} {'measuring s':>14s}")
    for one, other in zip(off, on, strict=True):
        spent = f"{one['measure_s']:.0f} / {other['measure_s']:.0f}"
        print(f"{one['run']:4d} {told(one):>24s} {told(other):>24s} {agreement(one, other):>10s} {spent:>14s}")
    pairs = list(zip(off, on, strict=True))
    each = [sum(r["measure_s"] for r in rows) / sum(r["explored"] for r in rows) for rows in (off, on)]
    print(f"\nseconds for each explored configuration: {each[0]:.1f} measured whole, {each[1]:.1f} with early ends")
    print(f"ended early: {sum(r['pruned'] for r in on)} of {sum(r['explored'] for r in on)}")
    worse = sum(agreement(*pair) == "worse" for pair in pairs)
    print(f"the winner with early ends is clearly slower than the one without: {worse} of {len(pairs)} pairs")
    kept, whole, lost = (sum(r["replay"][k] for r in off) for k in ("kept_s", "whole_s", "lost"))
    same = sum(r["replay"]["same_best"] for r in off)
    print(f"the same measurements of the {len(off)} whole studies, replayed: {1 - kept / whole:.0%} of the time saved,")
    print(f"{lost} ended although they would have beaten the incumbent, the same best one in {same} of {len(off)}")
    print(f"a pair took {2 * statistics.fmean(r['seconds'] for r in rows):.0f} s")


def told(row: Row) -> str:
    """Return a winner in a few letters."""
    return f"{row['ratio'] - 1:+.1%} (start {row['best']})" if row["outcome"] == Outcome.WIN else str(row["outcome"])


def agreement(whole: Row, early: Row) -> str:
    """Say whether two studies found the same: `yes`, `as fast`, or `worse` when early ends lost a clear gain."""
    if whole["outcome"] != Outcome.WIN or early["outcome"] != Outcome.WIN:
        return "worse" if whole["outcome"] == Outcome.WIN else "as fast"
    if whole["params"] == early["params"]:
        return "yes"
    return "worse" if early["ci_high"] < whole["ci_low"] else "as fast"


def spec_of(stage: Stage, asked: argparse.Namespace, number: int, early: bool) -> StudySpec:
    """Return the demo's specification with early ends on or off; both halves of a pair have one seed."""
    spec = build_spec(stage, trials=asked.trials, name=f"early-{number}-{'on' if early else 'off'}")
    budget = spec.budget.model_copy(update={"early_end": early, "confirm_restarts": asked.restarts, "candidates": 1})
    return spec.model_copy(update={"budget": budget, "seed": number})


def read(db: Database, study: StudyRecord, spec: StudySpec) -> Row:
    """Return the winner of a study and what its measurements cost."""
    verdict = study.verdict or {}
    told = {key: verdict.get(key) for key in ("outcome", "ratio", "ci_low", "ci_high", "params")}
    whole = []
    with db.read() as conn:
        rows = [t for t in trials.list_trials(conn, study.id) if t.kind in {"baseline", "explore"} and t.output_tok_s]
        for trial in rows:
            asked = [r for r in measurements.requests_of(conn, study.id, trial.number) if r.error is None]
            tok_s = {r.prompt: r.output_tokens / (r.end_s - r.start_s) for r in asked}
            whole.append(Measured(trial.canonical_key, tok_s, {r.prompt: r.end_s - r.start_s for r in asked}))
    replayed = None if spec.budget.early_end else vars(replay(whole))
    explored = [t for t in rows if t.kind == "explore"]
    return told | {
        "best": study.best_trial,
        "explored": len(explored),
        "pruned": sum(t.state == "pruned" for t in explored),
        "measure_s": round(sum(t.timings.get("measure_s", 0.0) for t in explored), 1),
        "replay": replayed,
    }


def main() -> None:
    """Print one of the two reports."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict.early_end", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--table", type=Path, help="a recorded table with values by prompt")
    what.add_argument("--real", type=int, metavar="N", help="pairs of studies on the demo's llama-server")
    parser.add_argument("--runs", type=int, default=200, help="orders drawn from a table")
    parser.add_argument("--explored", type=int, default=40, help="configurations of each order")
    parser.add_argument("--trials", type=int, default=12, help="configurations of each real study")
    parser.add_argument("--restarts", type=int, default=8, help="confirming restarts of each real study")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("early-end.jsonl"))
    asked = parser.parse_args()
    if asked.table:
        report_table(asked.table, runs=asked.runs, explored=asked.explored, seed=asked.seed)
    else:
        report_real(asked)


if __name__ == "__main__":
    main()
