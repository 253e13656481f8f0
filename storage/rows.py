"""Between records and rows: the little that every module of this package shares."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, CursorResult, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import Executable

from storage.errors import translated

R = TypeVar("R")


def execute(conn: Connection, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
    """Run one statement; errors of the driver come out as storage errors."""
    with translated():
        return conn.execute(statement, parameters)


def field_names(record_type: type[Any]) -> tuple[str, ...]:
    """Names of a record's fields, in order."""
    return tuple(f.name for f in dataclasses.fields(record_type))


def values_of(record: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a record's fields as columns. Unlike `dataclasses.asdict` nothing is copied."""
    return {name: getattr(record, name) for name in field_names(type(record)) if name not in without}


def columns_of(table: Table, record_type: type[Any]) -> list[sa.Column[Any]]:
    """Return the columns of a table that a record has fields for."""
    return [table.c[name] for name in field_names(record_type)]


def select_records(conn: Connection, record_type: type[R], statement: sa.Select[Any]) -> list[R]:
    """Run a select that has all columns of a record, and return its rows as records."""
    names = field_names(record_type)
    return [record_type(**{name: row[name] for name in names}) for row in _mappings(conn, statement)]


def select_record(conn: Connection, record_type: type[R], statement: sa.Select[Any]) -> R | None:
    """Run a select of at most one row and return it as a record."""
    found = select_records(conn, record_type, statement)
    return found[0] if found else None


def _mappings(conn: Connection, statement: sa.Select[Any]) -> Iterable[Any]:
    return execute(conn, statement).mappings()


def upsert(conn: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Insert a row, or change the one that has this key."""
    statement = _insert(conn, table).values({**key, **values})
    execute(conn, statement.on_conflict_do_update(index_elements=list(key), set_=dict(values)))


def insert_unless_there(conn: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless one with its key exists; say whether it was inserted."""
    statement = _insert(conn, table).values(dict(row)).on_conflict_do_nothing()
    return execute(conn, statement.returning(*table.primary_key.columns)).first() is not None


def _insert(conn: Connection, table: Table) -> Any:
    return sqlite.insert(table) if conn.dialect.name == "sqlite" else postgresql.insert(table)


def checked_fields(record_type: type[Any], fields: Mapping[str, Any], *, fixed: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of an update.

    Raises:
        TypeError: a field does not exist or never changes; a mistake in the program.
    """
    known = set(field_names(record_type)) - set(fixed)
    wrong = sorted(set(fields) - known)
    if wrong:
        raise TypeError(f"{record_type.__name__} has no changeable field {', '.join(wrong)}")
    return dict(fields)
