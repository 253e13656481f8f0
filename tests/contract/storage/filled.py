"""A database with a row of every kind, and a view of all its rows to compare."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import (
    events,
    hosts,
    idempotency,
    keys,
    logs,
    measurements,
    series,
    tables,
    trials,
    verdicts,
    webhooks,
    windows,
)
from storage.records import SeriesRecord, WebhookRecord
from tests.contract.storage import samples
from tests.contract.storage.samples import HOST, NOW


def fill(conn: Connection, *, trials_count: int = 3) -> int:
    """Store a row of every kind and return the fence of the host's lease."""
    hosts.put(conn, samples.host())
    windows.put(conn, samples.window())
    windows.open_run(conn, samples.window_run())
    keys.put(conn, samples.key())
    fence = samples.leased_study(conn)
    for number in range(trials_count):
        trials.add(conn, samples.trial(), host=HOST, fence=fence)
        measurements.add(conn, samples.measurement(trial_number=number), samples.requests(), host=HOST, fence=fence)
        logs.put(conn, "s1", number, b"log %d \x00\xff" % number)
        one = SeriesRecord("s1", number, "gpu0", "power_w", NOW, [0.0, 0.1], [400.0, 1 / 3])
        series.put(conn, [one], host=HOST, fence=fence)
        events.append(conn, "s1", "trial", {"number": number}, NOW)
        verdicts.add(conn, samples.verdict())
    events.append(conn, "", "service", {}, NOW)
    idempotency.begin(conn, "k1", "abc", "h", now=NOW)
    message = WebhookRecord(target="ops", kind="done", payload={}, created_at=NOW, next_at=NOW, study_id="s1")
    webhooks.enqueue(conn, message)
    return fence


def everything(conn: Connection) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every table by its key."""
    return {
        table.name: [
            dict(row) for row in conn.execute(sa.select(table).order_by(*table.primary_key.columns)).mappings()
        ]
        for table in tables.metadata.sorted_tables
    }
