"""Windows in which studies may run, and what became of each opening. When a window is open is decided above."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import tables
from storage.errors import Duplicate, Missing
from storage.records import WindowRecord, WindowRunRecord
from storage.rows import (
    checked_fields,
    columns_of,
    execute,
    insert_unless_there,
    select_record,
    select_records,
    values_of,
)

T = tables.windows
RUNS = tables.window_runs
FIXED = ("id", "created_at", "version")


def put(conn: Connection, window: WindowRecord) -> WindowRecord:
    """Store a new window and return it.

    Raises:
        Duplicate: the id or the name is taken.
    """
    taken = sa.select(T.c.id).where(sa.or_(T.c.id == window.id, T.c.name == window.name))
    if execute(conn, taken).first() is not None:
        raise Duplicate(
            f"a window named {window.name} exists already", remedy="choose another name, or remove that one"
        )
    execute(conn, sa.insert(T).values(values_of(window)))
    return window


def get(conn: Connection, id_or_name: str) -> WindowRecord:
    """Return a window by its id, or else by its name.

    Raises:
        Missing: there is none.
    """
    query = sa.select(*columns_of(T, WindowRecord)).where(sa.or_(T.c.id == id_or_name, T.c.name == id_or_name))
    found = select_records(conn, WindowRecord, query)
    if not found:
        raise Missing(f"there is no window {id_or_name}", remedy="`ratchet window list` shows what exists")
    return next((window for window in found if window.id == id_or_name), found[0])


def find(conn: Connection, window_id: str) -> WindowRecord | None:
    """Return a window by its id, or None."""
    return select_record(conn, WindowRecord, sa.select(*columns_of(T, WindowRecord)).where(T.c.id == window_id))


def list_windows(conn: Connection, *, limit: int | None = None, after: str | None = None) -> list[WindowRecord]:
    """Return windows by name; `after` is the last name of the page before."""
    query = sa.select(*columns_of(T, WindowRecord)).order_by(T.c.name).limit(limit)
    if after is not None:
        query = query.where(T.c.name > after)
    return select_records(conn, WindowRecord, query)


def update(conn: Connection, window_id: str, **fields: Any) -> WindowRecord:
    """Change fields of a window and count its version.

    Raises:
        Missing: there is none.
        Duplicate: the new name is taken.
    """
    changes = checked_fields(WindowRecord, fields, fixed=FIXED)
    query = sa.update(T).where(T.c.id == window_id).values(**changes, version=T.c.version + 1)
    if execute(conn, query).rowcount == 0:
        raise Missing(f"there is no window {window_id}")
    return get(conn, window_id)


def delete(conn: Connection, window_id: str) -> None:
    """Remove a window and the history of its openings; studies that named it lose it.

    Raises:
        Missing: there is none.
    """
    if execute(conn, sa.delete(T).where(T.c.id == window_id)).rowcount == 0:
        raise Missing(f"there is no window {window_id}")


def open_run(conn: Connection, run: WindowRunRecord) -> bool:
    """Store an opening; False when this window already has one on that local date, so nothing runs twice."""
    return insert_unless_there(conn, RUNS, values_of(run))


def update_run(conn: Connection, window_id: str, local_date: str, **fields: Any) -> None:
    """Change fields of an opening.

    Raises:
        Missing: there is none.
    """
    changes = checked_fields(WindowRunRecord, fields, fixed=("window_id", "local_date"))
    query = sa.update(RUNS).where(RUNS.c.window_id == window_id, RUNS.c.local_date == local_date)
    if execute(conn, query.values(**changes)).rowcount == 0:
        raise Missing(f"window {window_id} has no opening on {local_date}")


def get_run(conn: Connection, window_id: str, local_date: str) -> WindowRunRecord | None:
    """Return the opening of a window on a local date, or None."""
    where = (RUNS.c.window_id == window_id, RUNS.c.local_date == local_date)
    return select_record(conn, WindowRunRecord, sa.select(*columns_of(RUNS, WindowRunRecord)).where(*where))


def list_runs(conn: Connection, window_id: str, *, limit: int = 100) -> list[WindowRunRecord]:
    """Return the openings of a window, newest first."""
    query = (
        sa.select(*columns_of(RUNS, WindowRunRecord))
        .where(RUNS.c.window_id == window_id)
        .order_by(RUNS.c.opened_at.desc())
        .limit(limit)
    )
    return select_records(conn, WindowRunRecord, query)
