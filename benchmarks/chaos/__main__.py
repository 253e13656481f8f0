"""Kill the worker at every commit and every remote command of a short real study, start it again, and look.

    python -m benchmarks.chaos [--studies 50] [--database sqlite|postgres|both] [--log FILE] [--json]

The worker of each study gets SIGKILL five times: first at one point of all there are (evenly spread over the studies),
then at chance points of the recovery. Another goes on to the end. Then: the same set was measured as without a kill,
nothing twice, nothing lost, nothing left running, home answers, Optuna's study equals our rows. Exit 1 when any promise
was broken. With --log a campaign that was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.chaos.night import Nights
from benchmarks.chaos.stage import Stage, set_stage, verdict_on
from benchmarks.databases import fresh_database, postgres_server

KILLS = 5
"""Kills of each study: setting it up costs more than a kill."""
SOONEST = 5
"""A recovery lives at least so many points, or the study would get nowhere."""


@contextmanager
def staged(base_url: str | None) -> Iterator[Stage]:
    """Yield a stage on SQLite, or on a fresh database of a PostgreSQL."""
    if base_url is None:
        stage = set_stage(None)
        try:
            yield stage
        finally:
            stage.close()
        return
    with fresh_database(base_url, migrated=True) as url:
        stage = set_stage(url)
        try:
            yield stage
        finally:
            stage.close()


def undisturbed(nights: Nights, base_url: str | None) -> dict[str, Any]:
    """Run a study without a kill; return its points, its seconds, and what was wrong."""
    with staged(base_url) as stage:
        started = time.monotonic()
        night = nights.run(stage.db.url, stage.study_id)
        seconds = time.monotonic() - started
        return {"points": night.points, "seconds": round(seconds, 1), "wrong": verdict_on(stage)}


def disturbed(nights: Nights, base_url: str | None, first: int, points: int, seed: int) -> dict[str, Any]:
    """Kill the worker of a fresh study again and again, let the last one end it, and say what was wrong."""
    rng = random.Random(seed)
    kills = [first, *(rng.randint(SOONEST, points) for _ in range(KILLS - 1))]
    done = []
    with staged(base_url) as stage:
        started = time.monotonic()
        for kill_at in kills:
            if not nights.run(stage.db.url, stage.study_id, kill_at).killed:
                break  # it ended before
            done.append(kill_at)
        else:
            nights.run(stage.db.url, stage.study_id)
        seconds = time.monotonic() - started
        return {"killed_at": done, "seconds": round(seconds, 1), "wrong": verdict_on(stage)}


def campaign(kind: str, base_url: str | None, count: int, log: Path) -> list[dict[str, Any]]:
    """Run one undisturbed study and `count` disturbed ones; return a line for each, those of the log included."""
    known = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    lines = {line["study"]: line for line in known if line["database"] == kind}

    def keep(study: int, found: dict[str, Any]) -> None:
        lines[study] = {"database": kind, "study": study, **found}
        with log.open("a") as file:
            print(json.dumps(lines[study]), file=file)
        print(f"{kind} {study}/{count}: {json.dumps(found)}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="ratchet-nights-") as folder, Nights(Path(folder, "errors")) as nights:
        if 0 not in lines:
            keep(0, undisturbed(nights, base_url))
        points = lines[0]["points"]
        for study in range(1, count + 1):
            if study not in lines:
                first = 1 + ((study - 1) * points) // count
                keep(study, disturbed(nights, base_url, first, points, seed=study))
    return [lines[study] for study in range(count + 1)]


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of one campaign."""
    hurt = lines[1:]
    kills = sum(len(line["killed_at"]) for line in hurt)
    return {
        "database": lines[0]["database"],
        "points": lines[0]["points"],
        "studies": len(hurt),
        "kills": kills,
        "seconds_per_kill": round(sum(line["seconds"] for line in hurt) / max(1, kills), 1),
        "undisturbed_s": lines[0]["seconds"],
        "broken": [line for line in lines if line["wrong"]],
    }


def main() -> None:
    """Run the campaigns and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=50, help=f"for each kind of database, {KILLS} kills each")
    parser.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--log", type=Path, help="a file with a line for each study; what it has is not run again")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="ratchet-chaos-log-") as folder:
        log = options.log or Path(folder, "log")
        if options.database in {"sqlite", "both"}:
            results.append(summary(campaign("sqlite", None, options.studies, log)))
        if options.database in {"postgres", "both"}:
            with postgres_server() as url:
                if url is not None:
                    results.append(summary(campaign("postgres", url, options.studies, log)))
    if options.json:
        print(json.dumps(results, indent=2))
    for result in results if not options.json else []:
        print(
            f"{result['database']}: {result['kills']} kills in {result['studies']} studies of {result['points']} "
            f"points, {result['seconds_per_kill']} s a kill, {len(result['broken'])} broke a promise"
        )
    sys.exit(1 if any(result["broken"] for result in results) else 0)


if __name__ == "__main__":
    main()
