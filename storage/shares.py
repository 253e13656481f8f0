"""Which hosts a study works on, and how far the work on each of them is: its home, and how it ended there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import tables
from storage.errors import Missing
from storage.records import ShareRecord
from storage.rows import checked_fields, columns_of, execute, select_record, select_records, values_of

T = tables.shares
FIXED = ("study_id", "host", "position")


def add(conn: Connection, study_id: str, hosts: Sequence[str]) -> None:
    """Store the hosts of a new study, its own one first.

    Raises:
        Missing: there is no such study.
    """
    rows = [values_of(ShareRecord(study_id, host, position)) for position, host in enumerate(hosts)]
    execute(conn, sa.insert(T), rows)


def get(conn: Connection, study_id: str, host: str) -> ShareRecord:
    """Return the part of one host.

    Raises:
        Missing: the study does not work on this host.
    """
    query = sa.select(*columns_of(T, ShareRecord)).where(T.c.study_id == study_id, T.c.host == host)
    found = select_record(conn, ShareRecord, query)
    if found is None:
        raise Missing(f"study {study_id} does not work on host {host}")
    return found


def for_study(conn: Connection, study_id: str) -> list[ShareRecord]:
    """Return the parts of a study, its own host first."""
    query = sa.select(*columns_of(T, ShareRecord)).where(T.c.study_id == study_id).order_by(T.c.position)
    return select_records(conn, ShareRecord, query)


def update(conn: Connection, study_id: str, host: str, **fields: Any) -> None:
    """Change fields of one host's part.

    Raises:
        Missing: the study does not work on this host.
    """
    changes = checked_fields(ShareRecord, fields, fixed=FIXED)
    query = sa.update(T).where(T.c.study_id == study_id, T.c.host == host).values(**changes)
    if execute(conn, query).rowcount == 0:
        raise Missing(f"study {study_id} does not work on host {host}")


def begin_again(conn: Connection, study_id: str) -> None:
    """Forget how the work ended wherever it did not end with its result."""
    query = sa.update(T).where(T.c.study_id == study_id, T.c.ending.not_in(("", "finished")))
    execute(conn, query.values(ending="", reason=""))


def not_back(conn: Connection, study_id: str) -> list[ShareRecord]:
    """Return the parts whose home is not proved back."""
    return [part for part in for_study(conn, study_id) if part.taken]


def visit_again(conn: Connection, study_id: str) -> list[ShareRecord]:
    """Forget how the work ended wherever home is not proved back, and return those parts: somebody must go there."""
    found = not_back(conn, study_id)
    for part in found:
        update(conn, study_id, part.host, ending="", reason="")
    return found


def let_go(conn: Connection, host: str) -> None:
    """Note that no study has anything to put back on a host: it was done by hand, or the host is given up."""
    execute(conn, sa.update(T).where(T.c.host == host, T.c.taken).values(taken=False))


def remove(conn: Connection, study_id: str, host: str) -> None:
    """Take a host out of a study; its trials stay."""
    execute(conn, sa.delete(T).where(T.c.study_id == study_id, T.c.host == host))
