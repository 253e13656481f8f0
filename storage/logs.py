"""The server's log of each trial: compressed, limited in size, its end always kept (see `codec.pack_log`)."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import codec, leases, tables
from storage.errors import Missing
from storage.rows import execute, upsert

T = tables.logs


def put(
    conn: Connection,
    study_id: str,
    number: int,
    data: bytes,
    *,
    host: str | None = None,
    fence: int | None = None,
    limit: int = codec.LOG_LIMIT,
) -> None:
    """Store the log of a trial in place of what was there. With `host` and `fence`, guarded like the trial itself.

    Raises:
        Missing: there is no such trial.
        StaleFence: the lease of `host` no longer carries `fence`.
    """
    if host is not None and fence is not None:
        leases.guard(conn, host, fence)
    packed = codec.pack_log(data, limit=limit)
    new = {
        "codec": codec.LOG,
        "original_bytes": packed.original_bytes,
        "cut_bytes": packed.cut_bytes,
        "data": packed.data,
    }
    upsert(conn, T, {"study_id": study_id, "number": number}, new)


def get(conn: Connection, study_id: str, number: int) -> bytes:
    """Return the log of a trial as it was kept.

    Raises:
        Missing: none was stored, or retention removed it.
    """
    row = execute(conn, sa.select(T.c.codec, T.c.data).where(T.c.study_id == study_id, T.c.number == number)).first()
    if row is None:
        raise Missing(f"study {study_id} has no log of trial {number}", remedy="it was never stored, or it was pruned")
    return codec.unpack_log(row.codec, row.data)
