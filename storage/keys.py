"""API keys: only their hashes. What a scope allows is decided above."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import tables
from storage.errors import Duplicate, Missing
from storage.records import KeyRecord
from storage.rows import columns_of, execute, select_record, select_records, values_of

T = tables.keys


def put(conn: Connection, key: KeyRecord) -> KeyRecord:
    """Store a new key and return it.

    Raises:
        Duplicate: a key of this name is in force, or the id or prefix is taken.
    """
    taken = sa.select(T.c.id).where(T.c.name == key.name, T.c.revoked_at.is_(None))
    if execute(conn, taken).first() is not None:
        raise Duplicate(f"a key named {key.name} is in force", remedy="choose another name, or revoke that one")
    execute(conn, sa.insert(T).values(values_of(key)))
    return key


def get(conn: Connection, id_or_name: str) -> KeyRecord:
    """Return a key by its id, or else the newest one of that name.

    Raises:
        Missing: there is none.
    """
    query = (
        sa.select(*columns_of(T, KeyRecord))
        .where(sa.or_(T.c.id == id_or_name, T.c.name == id_or_name))
        .order_by(T.c.revoked_at.is_(None).desc(), T.c.created_at.desc())
    )
    found = select_records(conn, KeyRecord, query)
    if not found:
        raise Missing(f"there is no key {id_or_name}", remedy="`ratchet key list` shows what exists")
    return next((key for key in found if key.id == id_or_name), found[0])


def by_prefix(conn: Connection, prefix: str) -> KeyRecord | None:
    """Return the key with this public prefix, in force or not, or None."""
    return select_record(conn, KeyRecord, sa.select(*columns_of(T, KeyRecord)).where(T.c.prefix == prefix))


def list_keys(conn: Connection) -> list[KeyRecord]:
    """Return all keys, oldest first."""
    return select_records(conn, KeyRecord, sa.select(*columns_of(T, KeyRecord)).order_by(T.c.created_at, T.c.id))


def revoke(conn: Connection, key_id: str, now: datetime) -> KeyRecord:
    """End a key at once; one that was revoked before keeps its time.

    Raises:
        Missing: there is none.
    """
    revoked_at = sa.func.coalesce(T.c.revoked_at, sa.bindparam("now", now, type_=T.c.revoked_at.type))
    if execute(conn, sa.update(T).where(T.c.id == key_id).values(revoked_at=revoked_at)).rowcount == 0:
        raise Missing(f"there is no key {key_id}")
    return get(conn, key_id)


def touch(conn: Connection, key_id: str, now: datetime) -> None:
    """Note that a key was used."""
    execute(conn, sa.update(T).where(T.c.id == key_id).values(last_used_at=now))


def delete(conn: Connection, key_id: str) -> None:
    """Remove a key.

    Raises:
        Missing: there is none.
    """
    if execute(conn, sa.delete(T).where(T.c.id == key_id)).rowcount == 0:
        raise Missing(f"there is no key {key_id}")
