"""Registered hosts, and what was learnt about them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import tables
from storage.errors import Missing
from storage.records import HostRecord
from storage.rows import checked_fields, columns_of, execute, select_record, select_records, values_of

T = tables.hosts
FIXED = ("name", "created_at", "version")


def put(conn: Connection, host: HostRecord) -> HostRecord:
    """Store a host, or replace the entry of the one with this name; what was learnt about it stays.

    Raises:
        InvalidValue: a value that the schema refuses.
    """
    old = find(conn, host.name)
    if old is None:
        execute(conn, sa.insert(T).values(values_of(host)))
        return host
    return update(conn, host.name, entry=host.entry, host_key=host.host_key or old.host_key)


def get(conn: Connection, name: str) -> HostRecord:
    """Return a host.

    Raises:
        Missing: there is none.
    """
    found = find(conn, name)
    if found is None:
        raise Missing(f"there is no host {name}", remedy="`ratchet host add FILE.yaml` registers one")
    return found


def find(conn: Connection, name: str) -> HostRecord | None:
    """Return a host, or None."""
    return select_record(conn, HostRecord, sa.select(*columns_of(T, HostRecord)).where(T.c.name == name))


def list_hosts(conn: Connection, *, limit: int | None = None, after: str | None = None) -> list[HostRecord]:
    """Return hosts by name; `after` is the last name of the page before."""
    query = sa.select(*columns_of(T, HostRecord)).order_by(T.c.name).limit(limit)
    if after is not None:
        query = query.where(T.c.name > after)
    return select_records(conn, HostRecord, query)


def update(conn: Connection, name: str, **fields: Any) -> HostRecord:
    """Change fields of a host and count its version.

    Raises:
        Missing: there is none.
    """
    changes = checked_fields(HostRecord, fields, fixed=FIXED)
    query = sa.update(T).where(T.c.name == name).values(**changes, version=T.c.version + 1)
    if execute(conn, query).rowcount == 0:
        raise Missing(f"there is no host {name}")
    return get(conn, name)


def clear_mark(conn: Connection, name: str) -> None:
    """Take the mark away that keeps studies from a host; harmless where there is none, and no such host."""
    if (found := find(conn, name)) is not None and found.needs_attention:
        update(conn, name, needs_attention="")


def delete(conn: Connection, name: str) -> None:
    """Remove a host; its studies, and the fence of its lease, stay.

    Raises:
        Missing: there is none.
    """
    if execute(conn, sa.delete(T).where(T.c.name == name)).rowcount == 0:
        raise Missing(f"there is no host {name}")
