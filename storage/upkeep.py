"""Housekeeping: how long each kind of data is kept, giving space back, and a thorough check.

Decides what may go: bulky evidence of studies that ended long ago, and traces of the service. Results (studies, trials,
measurements, verdicts) are never removed by age, only by deleting their study.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Table

from storage import tables
from storage.engine import Database
from storage.errors import translated

ENDED = ("finished", "failed")
FOR_EVER_DAYS = 36_500.0
"""From so many days on a kind is kept for ever, infinity included."""
BATCH = 500
"""Rows removed in one transaction, so that nobody waits long for the lock."""


@dataclass(frozen=True)
class Retention:
    """Days that each kind of data is kept; None (or `FOR_EVER_DAYS`) keeps it for ever.

    Requests, logs and series count from the end of their study, and stay while it has not ended. The others count from
    when they happened.
    """

    requests_days: float | None = 180
    logs_days: float | None = 180
    series_days: float | None = 180
    events_days: float | None = 180
    webhooks_days: float | None = 30
    idempotency_days: float | None = 2


@dataclass(frozen=True)
class Space:
    """Bytes that the database takes on its disk."""

    total_bytes: int
    by_table: dict[str, int]
    """Rows with their indices; empty where SQLite was built without `dbstat`."""


def prune(db: Database, retention: Retention, now: datetime) -> dict[str, int]:
    """Remove what has outlived its time, in many short transactions; return the rows removed by table.

    Safe while studies run, and safe to stop at any point.
    """

    kept: list[tuple[Table, float | None]] = [
        (tables.request_batches, retention.requests_days),
        (tables.logs, retention.logs_days),
        (tables.series, retention.series_days),
        (tables.events, retention.events_days),
        (tables.webhooks, retention.webhooks_days),
        (tables.idempotency, retention.idempotency_days),
    ]
    return {
        table.name: _remove(db, table, _outlived(table, now - timedelta(days=days)))
        for table, days in kept
        if days is not None and days < FOR_EVER_DAYS
    }


def _outlived(table: Table, cutoff: datetime) -> ColumnElement[bool]:
    """Rows of a table whose time ended before the cutoff."""
    if table is tables.events:
        return table.c.at < cutoff
    if table is tables.webhooks:
        return sa.and_(table.c.state != "pending", table.c.created_at < cutoff)
    if table is tables.idempotency:
        return table.c.created_at < cutoff
    return _of_ended(table, cutoff)


def _of_ended(table: Table, cutoff: datetime) -> ColumnElement[bool]:
    """Rows that belong to a study which ended before the cutoff."""
    studies = tables.studies.c
    at = sa.func.coalesce(studies.finished_at, studies.updated_at)  # one that failed could go on: it never finished
    ended = sa.select(studies.id).where(studies.state.in_(ENDED), at < cutoff)
    if table is tables.request_batches:
        of = sa.select(tables.measurements.c.id).where(tables.measurements.c.study_id.in_(ended))
        return table.c.measurement_id.in_(of)
    of_study: ColumnElement[bool] = table.c.study_id.in_(ended)
    return of_study


def _remove(db: Database, table: Table, condition: ColumnElement[bool]) -> int:
    columns = list(table.primary_key.columns)
    key: Any = sa.tuple_(*columns) if len(columns) > 1 else columns[0]
    total = 0
    while True:
        with db.write() as conn:
            doomed = conn.execute(sa.select(*columns).where(condition).limit(BATCH)).all()
            if doomed:
                values = [tuple(row) if len(columns) > 1 else row[0] for row in doomed]
                conn.execute(sa.delete(table).where(key.in_(values)))
        total += len(doomed)
        if len(doomed) < BATCH:
            return total


def vacuum(db: Database) -> tuple[int, int]:
    """Give free space back to the file system and refresh the planner's statistics; return bytes before and after.

    SQLite needs room for a second copy meanwhile, and nobody can write.

    Raises:
        DatabaseBusy: somebody is writing for too long.
        DiskFull: there is no room for the copy; the file is as before.
    """
    before = space(db).total_bytes
    with translated():
        if db.path is not None:
            with closing(sqlite3.connect(db.path, isolation_level=None, timeout=db.patience_s)) as file:
                for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA optimize"):
                    file.execute(statement)
        else:
            with db.engine.connect() as conn:
                alone = conn.execution_options(isolation_level="AUTOCOMMIT")
                for name in tables.metadata.tables:
                    alone.exec_driver_sql(f"VACUUM (ANALYZE) {name}")
    return before, space(db).total_bytes


def space(db: Database) -> Space:
    """Return the bytes that the database takes."""
    with db.read() as conn:
        if not db.is_sqlite:
            names = "unnest(CAST(:names AS text[])) AS name"
            rows = conn.execute(
                sa.text(f"SELECT name, pg_total_relation_size(CAST(name AS regclass)) FROM {names}"),
                {"names": list(tables.metadata.tables)},
            )
            by_table = {str(name): int(size) for name, size in rows}
            return Space(sum(by_table.values()), by_table)
        pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
        page_size = conn.exec_driver_sql("PRAGMA page_size").scalar_one()
        try:
            rows = conn.exec_driver_sql(
                "SELECT m.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_master m ON m.name = d.name GROUP BY 1"
            )
            by_table = {str(name): int(size) for name, size in rows}
        except sa.exc.OperationalError:
            by_table = {}
    return Space(int(pages) * int(page_size), by_table)


def damage(db: Database) -> list[str]:
    """Return what is wrong inside the database, one line each: on SQLite a full check of pages and references."""
    if not db.is_sqlite:
        return []
    with db.read() as conn:
        found = [str(row[0]) for row in conn.exec_driver_sql("PRAGMA integrity_check")]
        orphans = conn.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    problems = [line for line in found if line != "ok"]
    return problems + [f"a row of {row[0]} refers to a row of {row[2]} that does not exist" for row in orphans]
