"""Who owns a host until when, with a number that only grows (the fence).

Decides atomically who gets a host, and refuses every write of somebody who lost it. The clock is the caller's: a clock
that is wrong by less than the lease's length can cost a lease, and never lets two owners write, because the fence
decides. The row of a host is never deleted, so that its fence can never start again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from storage import tables
from storage.errors import StaleFence
from storage.records import LeaseRecord
from storage.rows import columns_of, execute, select_record, select_records

T = tables.leases


def claim(
    conn: Connection, host: str, owner: str, *, ttl_s: float, now: datetime, study_id: str | None = None
) -> int | None:
    """Take a host that nobody holds; return the fence to write with, or None when somebody holds it.

    The owner's name makes no difference: a process that came back waits like any other until the old lease has ended,
    because the process before it may still be at work.
    """
    taken: dict[str, Any] = {"owner": owner, "until": now + timedelta(seconds=ttl_s), "study_id": study_id}
    insert: Any = sqlite.insert if conn.dialect.name == "sqlite" else postgresql.insert
    statement = (
        insert(T)
        .values(host=host, fence=1, **taken)
        .on_conflict_do_update(
            index_elements=[T.c.host],
            set_={**taken, "fence": T.c.fence + 1},
            where=sa.or_(T.c.until <= now, T.c.owner.is_(None)),
        )
        .returning(T.c.fence)
    )
    fence: int | None = execute(conn, statement).scalar_one_or_none()
    return fence


def renew(conn: Connection, host: str, owner: str, fence: int, *, ttl_s: float, now: datetime) -> bool:
    """Prolong a lease; False when it was lost. A lease that ran out unnoticed is prolonged if nobody took it."""
    changed = execute(
        conn,
        sa.update(T)
        .where(T.c.host == host, T.c.owner == owner, T.c.fence == fence)
        .values(until=now + timedelta(seconds=ttl_s)),
    )
    return changed.rowcount == 1


def release(conn: Connection, host: str, owner: str, fence: int) -> bool:
    """Give a host back; its fence stays and writes nothing more. False when it was lost before."""
    changed = execute(
        conn,
        sa.update(T).where(T.c.host == host, T.c.owner == owner, T.c.fence == fence).values(owner=None, study_id=None),
    )
    return changed.rowcount == 1


def get(conn: Connection, host: str) -> LeaseRecord | None:
    """Return the lease of a host, or None when nobody holds it. It may have run out: look at `until`."""
    query = sa.select(*columns_of(T, LeaseRecord)).where(T.c.host == host, T.c.owner.is_not(None))
    return select_record(conn, LeaseRecord, query)


def list_leases(conn: Connection) -> list[LeaseRecord]:
    """Return every lease that somebody holds."""
    query = sa.select(*columns_of(T, LeaseRecord)).where(T.c.owner.is_not(None)).order_by(T.c.host)
    return select_records(conn, LeaseRecord, query)


def guard(conn: Connection, host: str, fence: int) -> None:
    """Refuse to go on unless the lease of `host` is held and carries `fence`, now and until the transaction ends.

    Every writer of trials calls this first. The transaction must be one of `Database.write`.

    Raises:
        StaleFence: it does not.
    """
    query = sa.select(T.c.fence, T.c.owner).where(T.c.host == host)
    if conn.dialect.name != "sqlite":
        # The writer's lock already keeps a claim out; the row's lock keeps it out of hand-written SQL too.
        query = query.with_for_update(read=True)
    row = execute(conn, query).one_or_none()
    current = None if row is None or row.owner is None else int(row.fence)
    if current != fence:
        raise StaleFence(host, fence, current)
