"""A/A on the demo's real llama-server: the baseline judged against itself, run after run; any win is a false one.

    python -m benchmarks.verdict.self_test --runs 20 --out self-test.jsonl

Each run is a whole `--self-test` study over SSH on loopback; answers are short, so that a run takes about a minute.
Stopped and started again, it goes on after the last whole line of the file.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from api.demo.stage import Stage, build_spec
from benchmarks.verdict.real import Row, keep, rows_of, run_study
from optimizer.bench.base import Outcome
from optimizer.selftest import noise_report, self_test_spec
from optimizer.spec import StudySpec
from storage.engine import Database
from storage.records import StudyRecord


def main() -> int:
    """Run what is missing and print how many runs ended in a win."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict.self_test", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=8, help="fresh starts compared in each run (least 8)")
    parser.add_argument("--max-tokens", type=int, default=32, help="most tokens of one answer")
    parser.add_argument("--out", type=Path, default=Path("self-test.jsonl"))
    asked = parser.parse_args()
    rows = rows_of(asked.out)
    for number in range(len(rows), asked.runs):
        row = run_study(lambda stage, n=number: spec_of(stage, asked, n), read)  # type: ignore[misc]
        rows.append({"run": number, **row})
        keep(asked.out, rows[-1])
    wins = sum(row["outcome"] == Outcome.WIN for row in rows)
    scatter = statistics.fmean(row["noise"]["restart"] for row in rows)
    ratios = [abs(row["ratio"] - 1) for row in rows]
    print(f"{wins} wins in {len(rows)} runs of the baseline against itself", file=sys.stderr)
    print(f"one restart scatters by {scatter:.2%}; the arms differed by up to {max(ratios):.2%}", file=sys.stderr)
    return 1 if wins else 0


def spec_of(stage: Stage, asked: argparse.Namespace, number: int) -> StudySpec:
    """Return the demo's specification as a short self-test."""
    spec = build_spec(stage, trials=None, name=f"a-a-{number}")
    budget = spec.budget.model_copy(update={"confirm_restarts": asked.restarts})
    workload = {**spec.workload, "max_tokens": asked.max_tokens}
    return self_test_spec(spec.model_copy(update={"budget": budget, "workload": workload}))


def read(db: Database, study: StudyRecord, spec: StudySpec) -> Row:
    """Return the verdict and the noise of one run."""
    verdict = study.verdict or {}
    told = {key: verdict.get(key) for key in ("outcome", "ratio", "ci_low", "ci_high", "restarts")}
    return told | {"noise": noise_report(db, study.id, spec)}


if __name__ == "__main__":
    sys.exit(main())
