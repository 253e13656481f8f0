"""Measurements with their raw requests. The requests of one measurement are one compressed row (see `codec`)."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import codec, leases, tables
from storage.records import MeasurementRecord, RequestRecord
from storage.rows import columns_of, execute, select_records, values_of

T = tables.measurements
B = tables.request_batches


def add(
    conn: Connection, measurement: MeasurementRecord, requests: Sequence[RequestRecord], *, host: str, fence: int
) -> int:
    """Store a measurement and its requests, and return its id; the record's own is ignored.

    Raises:
        StaleFence: the lease of `host` no longer carries `fence`.
        Missing: there is no such trial.
    """
    leases.guard(conn, host, fence)
    row = values_of(measurement, without=("id",))
    new_id = int(execute(conn, sa.insert(T).values(row).returning(T.c.id)).scalar_one())
    packed = codec.pack_requests(requests)
    batch = {"measurement_id": new_id, "codec": codec.REQUESTS, "requests": len(requests), "data": packed}
    execute(conn, sa.insert(B).values(batch))
    return new_id


def for_study(conn: Connection, study_id: str) -> list[MeasurementRecord]:
    """Return every measurement of a study in the order of their making."""
    query = sa.select(*columns_of(T, MeasurementRecord)).where(T.c.study_id == study_id).order_by(T.c.id)
    return select_records(conn, MeasurementRecord, query)


def for_trial(conn: Connection, study_id: str, number: int) -> list[MeasurementRecord]:
    """Return the measurements of one trial in the order of their making."""
    query = (
        sa.select(*columns_of(T, MeasurementRecord))
        .where(T.c.study_id == study_id, T.c.trial_number == number)
        .order_by(T.c.id)
    )
    return select_records(conn, MeasurementRecord, query)


def requests_of(conn: Connection, study_id: str, number: int) -> list[RequestRecord]:
    """Return the raw requests of a trial, over all its measurements; empty when retention removed them."""
    query = (
        sa.select(B.c.codec, B.c.data)
        .join(T, T.c.id == B.c.measurement_id)
        .where(T.c.study_id == study_id, T.c.trial_number == number)
        .order_by(T.c.id)
    )
    return [request for row in execute(conn, query) for request in codec.unpack_requests(row.codec, row.data)]
