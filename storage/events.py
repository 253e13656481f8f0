"""What happened, in order. Ids grow in the order of commits (one writer at a time), so `since` never misses one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import tables
from storage.records import EventRecord
from storage.rows import execute

T = tables.events


def append(conn: Connection, study_id: str, kind: str, data: dict[str, Any], now: datetime) -> int:
    """Store an event and return its id; an empty `study_id` is an event of the service.

    Raises:
        Missing: there is no such study.
    """
    row = {"study_id": study_id or None, "kind": kind, "data": data, "at": now}
    return int(execute(conn, sa.insert(T).values(row).returning(T.c.id)).scalar_one())


def since(conn: Connection, after_id: int, *, study_id: str | None = None, limit: int = 500) -> list[EventRecord]:
    """Return events with ids above `after_id`, oldest first; of one study, or with None of all."""
    query = sa.select(T).where(T.c.id > after_id).order_by(T.c.id).limit(limit)
    if study_id is not None:
        query = query.where(T.c.study_id == study_id)
    return [
        EventRecord(id=row.id, study_id=row.study_id or "", kind=row.kind, data=row.data, at=row.at)
        for row in execute(conn, query)
    ]


def last_id(conn: Connection, *, study_id: str | None = None) -> int:
    """Return the id of the newest event, 0 when there is none."""
    query = sa.select(sa.func.max(T.c.id))
    if study_id is not None:
        query = query.where(T.c.study_id == study_id)
    return int(execute(conn, query).scalar_one() or 0)
