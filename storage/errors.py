"""Every error of the storage, in one tree, and the one place where a driver's error becomes one of them.

    StorageError                      what happened in which database, what to do
    +- BadDatabaseUrl                 cannot be used as a database
    +- Missing                        a named row, or the row that another one refers to, does not exist
    +- Duplicate                      a row with this identity or name exists already
    +- InvalidValue                   refused by a check: a state, kind or number outside its range
    +- StaleFence                     the lease of the host carries another fence now; nothing was written
    +- SchemaOutdated                 the database's revision is not the one of this program
    +- DatabaseBusy                   another process held the lock for too long                  (retry)
    +- DatabaseUnavailable            no connection, or it broke in the middle                    (retry)
    +- DiskFull                       no room: nothing of the transaction was kept
    +- Corrupt                        the file is damaged or is not a database

Whether to retry is a property of the class. A transaction that raised any of these left nothing behind, with one
exception: when a connection breaks during COMMIT, nobody knows; repeat only what is safe to repeat.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from sqlalchemy import exc

PG_DISK_FULL = "53100"
PG_BUSY = {"55P03", "40001", "40P01", "57014"}
"""lock_not_available, serialization_failure, deadlock_detected, query_canceled (statement timeout)."""
PG_LOST = {"57P01", "57P02", "57P03", "25P03", "53300"}
"""admin_shutdown, crash_shutdown, cannot_connect_now, idle_in_transaction_session_timeout, too_many_connections."""


class StorageError(Exception):
    """Something went wrong in the database; `str()` is one line, `remedy` says what to do."""

    retry: ClassVar[bool] = False

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy

    @property
    def message(self) -> str:
        """What happened, in one line."""
        return str(self.args[0])


class BadDatabaseUrl(StorageError):
    """The URL is not one of a database that can be used."""


class Missing(StorageError):
    """A named row, or the row that another one refers to, does not exist."""


class Duplicate(StorageError):
    """A row with this identity or name exists already."""


class InvalidValue(StorageError):
    """A value that the schema refuses."""


class StaleFence(StorageError):
    """The lease of the host carries another fence now, so this writer no longer owns the host."""

    def __init__(self, host: str, fence: int, current: int | None) -> None:
        now = "nobody holds it" if current is None else f"it carries fence {current}"
        super().__init__(
            f"host {host}: the lease of fence {fence} is lost ({now}); nothing was written",
            remedy="stop work on this host; its new owner goes on",
        )
        self.host = host
        self.fence = fence
        self.current = current


class SchemaOutdated(StorageError):
    """The database's revision is not the one that this program was written for."""


class DatabaseBusy(StorageError):
    """Another process held the database's lock for longer than the patience of this one."""

    retry = True


class DatabaseUnavailable(StorageError):
    """The database cannot be reached, or the connection broke in the middle."""

    retry = True


class DiskFull(StorageError):
    """There is no room left; nothing of the transaction was kept."""


class Corrupt(StorageError):
    """The file is damaged or is not a database."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn every error of SQLAlchemy and the drivers into one of this tree."""
    try:
        yield
    except (exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error


def fault_behind(error: BaseException) -> StorageError | None:
    """Return the storage error that an error of another library (Optuna) was raised from, or None."""
    seen: BaseException | None = error
    while seen is not None:
        known = seen if isinstance(seen, StorageError) else translate(seen)
        if known is not None:
            return known
        seen = seen.__cause__ or seen.__context__
    return None


def translate(error: BaseException) -> StorageError | None:
    """Return the storage error that stands for a driver's error, or None when it is a mistake in the program."""
    if isinstance(error, OSError):
        return _disk_full(str(error)) if error.errno in {errno.ENOSPC, errno.EDQUOT} else None
    if isinstance(error, sqlite3.Error):
        return _from_sqlite(" ".join(str(error).split()))
    if isinstance(error, exc.TimeoutError):
        return DatabaseBusy("every connection to the database is in use", remedy="try again")
    if not isinstance(error, exc.DBAPIError):
        return None
    original = error.orig
    sqlstate = getattr(original, "sqlstate", None)
    text = " ".join(str(original).split())
    if sqlstate is not None:
        return _from_postgres(str(sqlstate), text)
    if type(original).__module__.startswith("psycopg"):
        lost = error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError)
        return _unavailable(text) if lost else None
    return _from_sqlite(text)


def _from_postgres(sqlstate: str, text: str) -> StorageError | None:
    if sqlstate == "23505":
        return Duplicate(text)
    if sqlstate == "23503":
        return Missing(text)
    if sqlstate in {"23514", "23502", "22001", "22003"}:
        return InvalidValue(text)
    if sqlstate == PG_DISK_FULL:
        return _disk_full(text)
    if sqlstate in PG_BUSY:
        return DatabaseBusy(f"PostgreSQL did not get to it in time: {text}", remedy="try again")
    if sqlstate in PG_LOST or sqlstate.startswith("08"):
        return _unavailable(text)
    if sqlstate == "42501":
        return StorageError(
            f"PostgreSQL does not allow it: {text}",
            remedy="let this role make schemas and tables: GRANT CREATE ON DATABASE and ON SCHEMA public",
        )
    if sqlstate in {"42P01", "42703"}:
        return SchemaOutdated(f"the database lacks what this program needs: {text}", remedy="run `ratchet db upgrade`")
    return None


def _from_sqlite(text: str) -> StorageError | None:
    lower = text.lower()
    if "unique constraint" in lower:
        return Duplicate(text)
    if "foreign key constraint" in lower:
        return Missing(f"{text}: what this row refers to does not exist")
    if "check constraint" in lower or "not null constraint" in lower:
        return InvalidValue(text)
    if "locked" in lower or "busy" in lower:
        return DatabaseBusy(
            "another process has locked the SQLite file for too long",
            remedy="close what holds it open (a shell, a viewer, a copy), then try again",
        )
    if "disk is full" in lower or "disk i/o error" in lower:
        return _disk_full(text)
    if "malformed" in lower or "not a database" in lower:
        return Corrupt(f"the SQLite file is damaged: {text}", remedy="restore a backup with `ratchet db restore`")
    if "unable to open" in lower or "readonly" in lower:
        return DatabaseUnavailable(
            f"the SQLite file cannot be opened for writing: {text}", remedy="check the path and its permissions"
        )
    if "no such table" in lower or "no such column" in lower or "has no column" in lower:
        return SchemaOutdated(f"the database lacks what this program needs: {text}", remedy="run `ratchet db upgrade`")
    return None


def _disk_full(text: str) -> DiskFull:
    return DiskFull(
        f"no room left where the database lives: {text}", remedy="free some space; `ratchet db vacuum` removes old data"
    )


def _unavailable(text: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"no connection to PostgreSQL: {text}", remedy="check that it runs and is reachable")
