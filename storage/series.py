"""Numbers over time: engine telemetry and samples of the GPUs, one compressed row per source and name (see `codec`)."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import codec, leases, tables
from storage.records import SeriesRecord
from storage.rows import execute, upsert

T = tables.series


def put(conn: Connection, series: Iterable[SeriesRecord], *, host: str, fence: int) -> None:
    """Store series, each in place of what was there.

    Raises:
        StaleFence: the lease of `host` no longer carries `fence`.
        Missing: there is no such trial.
    """
    leases.guard(conn, host, fence)
    for one in series:
        key = {
            "study_id": one.study_id,
            "trial_number": one.trial_number,
            "source": one.source,
            "name": one.name,
        }
        data = {
            "started_at": one.started_at,
            "points": len(one.values),
            "codec": codec.SERIES,
            "data": codec.pack_series(one.times_s, one.values),
        }
        upsert(conn, T, key, data)


def for_trial(conn: Connection, study_id: str, number: int, *, source: str | None = None) -> list[SeriesRecord]:
    """Return the series of one trial by source and name; empty when none were taken or retention removed them."""
    query = sa.select(T).where(T.c.study_id == study_id, T.c.trial_number == number).order_by(T.c.source, T.c.name)
    if source is not None:
        query = query.where(T.c.source == source)
    found = []
    for row in execute(conn, query):
        times, values = codec.unpack_series(row.codec, row.data)
        found.append(SeriesRecord(row.study_id, row.trial_number, row.source, row.name, row.started_at, times, values))
    return found
