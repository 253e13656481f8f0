"""The queries of docs/howto/sql.md run on both databases, and answer what they say."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from storage import logs, migrate, studies, trials
from storage.engine import Database
from tests.contract.storage import samples
from tests.contract.storage.filled import fill
from tests.contract.storage.samples import HOST, NOW

PAGE = (Path(__file__).parents[3] / "docs/howto/sql.md").read_text()
QUERIES = [
    (title.strip(), dialect, sql)
    for title, body in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    for dialect, sql in re.findall(r"```sql ?(\w*)\n(.*?)```", body, re.S)
]


@pytest.fixture
def told(db: Database) -> Database:
    """A database with wins, failures, and a baseline on two days."""
    with db.write() as conn:
        fence = fill(conn)
        studies.update(conn, "s1", verdict={"outcome": "win"}, best_trial=2)
        studies.create(conn, samples.study(id="s2", verdict={"outcome": "win"}, best_trial=0, fingerprint="other"))
        trials.add(conn, samples.trial(study_id="s2", output_tok_s=80.0), host=HOST, fence=fence)
        params = {"speculative-num-steps": 5}
        failure = {"label": "oom_cuda_graph_capture", "blame": "config", "summary": "no memory for the graphs"}
        for state in ("infeasible", "infeasible", "complete"):
            bad = samples.trial(state=state, params=params, failure=failure if state == "infeasible" else None)
            trials.add(conn, bad, host=HOST, fence=fence)
        for days, speed in [(0, 100.0), (0, 102.0), (7, 90.9)]:
            at = NOW + timedelta(days=days)
            plain = samples.trial(
                kind="baseline", output_tok_s=speed, started_at=at, finished_at=at + timedelta(minutes=30)
            )
            trials.add(conn, plain, host=HOST, fence=fence)
        logs.put(conn, "s1", 0, b"x" * 5000, limit=1000)
    return db


def answers(db: Database, title: str) -> list[dict[str, Any]]:
    with db.read() as conn:
        return run(conn, next(sql for name, dialect, sql in QUERIES if name == title and dialect in {"", kind(db)}))


def run(conn: Connection, sql: str) -> list[dict[str, Any]]:
    return [dict(row) for row in conn.exec_driver_sql(sql.replace("%", "%%")).mappings()]


def kind(db: Database) -> str:
    return db.engine.dialect.name


def test_every_query_of_the_page_runs_and_finds_something(told: Database) -> None:
    assert len(QUERIES) >= 11
    for title, dialect, sql in QUERIES:
        if dialect in {"", kind(told)}:
            with told.read() as conn:
                assert run(conn, sql), title


def test_the_page_is_written_for_the_newest_revision() -> None:
    assert f"({migrate.head()})" in PAGE


def test_the_best_of_a_host_is_the_fastest_proven_one(told: Database) -> None:
    best = answers(told, "The best proven configuration of each host")
    assert [(row["host"], row["name"], row["output_tok_s"]) for row in best] == [(HOST, "study-s1", 91.7)]


def test_failures_are_counted_by_cause(told: Database) -> None:
    first = answers(told, "All failures by cause")[0]
    assert (first["cause"], first["trials"], first["example"]) == (
        "oom_cuda_graph_capture",
        2,
        "no memory for the graphs",
    )
    worst = answers(told, "Which values fail")[0]
    assert (str(worst["steps"]), worst["trials"], worst["infeasible"]) == ("5", 3, 2)


def test_the_drift_of_the_baseline_is_against_its_first_day(told: Database) -> None:
    drift = answers(told, "Drift of the baseline over days and weeks")
    assert [(row["day"], row["restarts"]) for row in drift] == [("2026-10-25", 2), ("2026-11-01", 1)]
    assert [round(float(row["drift_pct"]), 6) for row in drift] == [0.0, -10.0]


def test_the_cost_counts_hours_and_those_that_were_lost(told: Database) -> None:
    cost = {row["name"]: row for row in answers(told, "What a study cost in hours of the machine")}
    one = 595 / 3600
    assert float(cost["study-s1"]["hours"]) == pytest.approx(6 * one + 3 * 0.5, rel=1e-6)
    assert float(cost["study-s1"]["hours_lost"]) == pytest.approx(2 * one, rel=1e-6)
