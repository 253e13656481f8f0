"""Messages to the outside: written in the same transaction as what they tell, delivered later, at least once.

Decides what is due and what was given up; who delivers and how often is tried is decided above.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import tables
from storage.errors import Missing
from storage.records import WebhookRecord
from storage.rows import execute, values_of

T = tables.webhooks


def enqueue(conn: Connection, message: WebhookRecord) -> int:
    """Store a message and return its id; the record's own is ignored."""
    row = {**values_of(message, without=("id",)), "study_id": message.study_id or None}
    return int(execute(conn, sa.insert(T).values(row).returning(T.c.id)).scalar_one())


def take_due(conn: Connection, now: datetime, *, hold_s: float, limit: int = 20) -> list[WebhookRecord]:
    """Return messages that are due, oldest first, and hide them from others for `hold_s` seconds.

    Whoever dies with a message in hand leaves it to the next taker after that time.
    """
    query = sa.select(T).where(T.c.state == "pending", T.c.next_at <= now).order_by(T.c.id).limit(limit)
    found = [_record(row) for row in execute(conn, query)]
    if found:
        held = sa.update(T).where(T.c.id.in_([message.id for message in found]))
        execute(conn, held.values(next_at=now + timedelta(seconds=hold_s), attempts=T.c.attempts + 1))
    return found


def sent(conn: Connection, message_id: int, now: datetime) -> None:
    """Note that a message was delivered."""
    _change(conn, message_id, {"state": "sent", "sent_at": now, "last_error": ""})


def failed(conn: Connection, message_id: int, error: str, *, again_at: datetime | None) -> None:
    """Note that a message was not delivered; it is due again at that time, or with None given up."""
    later = {"state": "given_up"} if again_at is None else {"next_at": again_at}
    _change(conn, message_id, {"last_error": error, **later})


def list_messages(conn: Connection, *, study_id: str | None = None, limit: int = 100) -> list[WebhookRecord]:
    """Return messages, newest first; of one study, or with None of all."""
    query = sa.select(T).order_by(T.c.id.desc()).limit(limit)
    if study_id is not None:
        query = query.where(T.c.study_id == study_id)
    return [_record(row) for row in execute(conn, query)]


def _change(conn: Connection, message_id: int, values: dict[str, object]) -> None:
    if execute(conn, sa.update(T).where(T.c.id == message_id).values(values)).rowcount == 0:
        raise Missing(f"there is no message {message_id}")


def _record(row: sa.Row[tuple[object, ...]]) -> WebhookRecord:
    fields = {**row._mapping, "study_id": row._mapping["study_id"] or ""}
    return WebhookRecord(**fields)
