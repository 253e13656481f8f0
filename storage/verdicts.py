"""Every look at the evidence, kept with the restarts it was made from."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import tables
from storage.records import VerdictRecord
from storage.rows import columns_of, execute, select_records, values_of

T = tables.verdicts


def add(conn: Connection, verdict: VerdictRecord) -> int:
    """Store a verdict and return its id; the record's own is ignored.

    Raises:
        Missing: there is no such study.
    """
    statement = sa.insert(T).values(values_of(verdict, without=("id",))).returning(T.c.id)
    return int(execute(conn, statement).scalar_one())


def for_study(conn: Connection, study_id: str) -> list[VerdictRecord]:
    """Return every verdict of a study, oldest first."""
    query = sa.select(*columns_of(T, VerdictRecord)).where(T.c.study_id == study_id).order_by(T.c.id)
    return select_records(conn, VerdictRecord, query)
