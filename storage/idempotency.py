"""Answers to POSTs that carried a key, so that a repeated request gets the first answer again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import tables
from storage.errors import Missing
from storage.records import IdempotencyRecord
from storage.rows import columns_of, execute, insert_unless_there, select_record

T = tables.idempotency


def begin(conn: Connection, caller: str, key: str, request_hash: str, *, now: datetime) -> IdempotencyRecord | None:
    """Reserve a key: None when it is new, else what is known of the request that came first.

    That request is still at work, or its process died, while `status` is None.
    """
    row = {"caller": caller, "key": key, "request_hash": request_hash, "created_at": now}
    if insert_unless_there(conn, T, row):
        return None
    return get(conn, caller, key)


def get(conn: Connection, caller: str, key: str) -> IdempotencyRecord | None:
    """Return what is known of a request, or None."""
    query = sa.select(*columns_of(T, IdempotencyRecord)).where(T.c.caller == caller, T.c.key == key)
    return select_record(conn, IdempotencyRecord, query)


def finish(conn: Connection, caller: str, key: str, *, status: int, response: dict[str, Any]) -> None:
    """Keep the answer of a request.

    Raises:
        Missing: its key was forgotten meanwhile.
    """
    query = sa.update(T).where(T.c.caller == caller, T.c.key == key).values(status=status, response=response)
    if execute(conn, query).rowcount == 0:
        raise Missing(f"the idempotency key {key} is not reserved")


def forget(conn: Connection, caller: str, key: str) -> None:
    """Free a key, when its request did nothing."""
    execute(conn, sa.delete(T).where(T.c.caller == caller, T.c.key == key))
