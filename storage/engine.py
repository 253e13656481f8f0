"""Open a database: SQLite in a file, or PostgreSQL by URL.

Decides how connections are set up, where Optuna's own tables live, and the one rule of concurrency: on both databases
there is one writer at a time. SQLite's BEGIN IMMEDIATE does that by itself; on PostgreSQL every write transaction takes
one advisory lock. So ids are given out in the order of commits, readers of events never miss a late one, and no two
writers can deadlock. Callers own transactions and keep them short; which revision the schema has is up to `migrate`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

# Optuna would import this in one thread while another runs a statement, which a half imported one breaks.
import sqlalchemy.orm
from sqlalchemy import Connection, Engine, event, exc, pool
from sqlalchemy.engine import URL, make_url

from storage.errors import BadDatabaseUrl, DatabaseBusy, DatabaseUnavailable, translated

T = TypeVar("T")

PATIENCE_S = 30.0
"""How long a write waits for the lock or for the database to come back: longer than a backup or a restart takes."""
PAUSED_WRITER_S = 10
"""After this long without a statement PostgreSQL ends a transaction, so that a stopped process blocks nobody."""
WRITER_LOCK = 0x52_41_54_43_48_45_54
"""Key of the advisory lock that every writer takes on PostgreSQL ("RATCHET" in ASCII)."""
OLDEST_SQLITE = (3, 35, 0)
"""The first with RETURNING."""
WRITE_OPTION = "ratchet_write"


class Database:
    """An open database. Safe to share between threads; after a fork the child opens its own."""

    def __init__(self, engine: Engine, *, patience_s: float) -> None:
        self.engine = engine
        self.patience_s = patience_s

    @property
    def is_sqlite(self) -> bool:
        """Say whether this is SQLite."""
        return self.engine.dialect.name == "sqlite"

    @property
    def path(self) -> Path | None:
        """The file of SQLite; None on PostgreSQL."""
        return Path(str(self.engine.url.database)) if self.is_sqlite else None

    @property
    def url(self) -> str:
        """The URL, with its password."""
        return self.engine.url.render_as_string(hide_password=False)

    @property
    def name(self) -> str:
        """What to call this database in a message: the URL without its password."""
        return self.engine.url.render_as_string(hide_password=True)

    @property
    def optuna_path(self) -> Path | None:
        """The file of Optuna's tables beside ours on SQLite; None on PostgreSQL."""
        return self.path.with_suffix(f".optuna{self.path.suffix}") if self.path else None

    @property
    def optuna_url(self) -> str:
        """Where Optuna's own tables live: a second file beside ours, or the schema `optuna`, made by the migrations."""
        if self.is_sqlite:
            return self.engine.url.set(database=str(self.optuna_path)).render_as_string(hide_password=False)
        return self._in_schema("optuna").render_as_string(hide_password=False)

    def libpq_url(self, schema: str) -> str:
        """The URL for PostgreSQL's own clients, with this schema as the only one that is searched."""
        return self._in_schema(schema).set(drivername="postgresql").render_as_string(hide_password=False)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection for reading, in one short transaction.

        Raises:
            DatabaseUnavailable: no connection within the patience.
        """
        with translated(), self._connected() as conn, conn.begin():
            yield conn

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection for writing: one short transaction, committed at the end, rolled back on any exception.

        Waits up to the patience for the one writer's lock. Never wait for anything else inside.

        Raises:
            DatabaseBusy: another process kept the lock for too long.
            DatabaseUnavailable: no connection within the patience, or it broke.
            DiskFull: no room; nothing was kept.
        """
        with translated(), self._connected() as raw:
            conn = raw.execution_options(**{WRITE_OPTION: True})
            with conn.begin():
                if not self.is_sqlite:
                    conn.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": WRITER_LOCK})
                yield conn

    def transact(self, work: Callable[[Connection], T], *, patience_s: float | None = None) -> T:
        """Run `work` in a write transaction, again when the database was busy or went away, until the patience ends.

        `work` must be safe to repeat: when a connection breaks during COMMIT, the first run may have been kept.
        """
        end = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        while True:
            try:
                with self.write() as conn:
                    return work(conn)
            except (DatabaseBusy, DatabaseUnavailable):
                if time.monotonic() >= end:
                    raise
                time.sleep(0.2)

    def close(self) -> None:
        """Close every pooled connection."""
        self.engine.dispose()

    def _in_schema(self, schema: str) -> URL:
        url = self.engine.url
        options = " ".join([*_listed(url.query.get("options")), f"-csearch_path={schema}"])
        return url.update_query_dict({"options": options})

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Yield a fresh connection, waiting for a PostgreSQL that is restarting."""
        end = time.monotonic() + self.patience_s
        while True:
            try:
                conn = self.engine.connect()
                break
            except exc.OperationalError:
                if self.is_sqlite or time.monotonic() >= end:
                    raise
                time.sleep(0.2)
        with conn:
            yield conn


def home_dir() -> Path:
    """Return the folder of everything that Ratchet keeps on this machine: `$RATCHET_HOME`, or under ~/.local/share."""
    return Path(os.environ.get("RATCHET_HOME") or Path.home() / ".local" / "share" / "ratchet").expanduser()


def default_url() -> str:
    """Return the URL of the database used when none is given."""
    return f"sqlite:///{home_dir() / 'ratchet.db'}"


def open_database(url: str | None = None, *, patience_s: float = PATIENCE_S) -> Database:
    """Open `sqlite:///FILE` or `postgresql://...`; the schema is up to `migrate.upgrade`.

    A missing SQLite file is created, readable by its owner only. PostgreSQL is reached by psycopg 3.

    Raises:
        BadDatabaseUrl: not such a URL, or the driver is not installed.
        DatabaseUnavailable: the SQLite file cannot be created or opened.
    """
    parsed = _parse(url or default_url())
    engine = _sqlite_engine(parsed, patience_s) if parsed.drivername.startswith("sqlite") else _postgres_engine(parsed)
    database = Database(engine, patience_s=patience_s)
    if database.is_sqlite:
        with database.read():
            pass
    return database


def _parse(url: str) -> URL:
    remedy = "use sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE"
    try:
        parsed = make_url(url)
    except exc.ArgumentError as error:
        raise BadDatabaseUrl("the database URL cannot be read", remedy=remedy) from error
    if parsed.drivername in {"postgres", "postgresql", "postgresql+psycopg"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in {"sqlite", "sqlite+pysqlite"}:
        raise BadDatabaseUrl(f"{parsed.drivername!r} is not a database that Ratchet can use", remedy=remedy)
    if parsed.database in {None, "", ":memory:"} or str(parsed.database).startswith("file:"):
        raise BadDatabaseUrl("SQLite needs a plain file path: several threads and processes share it", remedy=remedy)
    return parsed.set(database=str(Path(str(parsed.database)).expanduser().absolute()))


def _sqlite_engine(url: URL, patience_s: float) -> Engine:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise BadDatabaseUrl(f"SQLite {sqlite3.sqlite_version} is too old; 3.35 is the oldest that works")
    _create_private(Path(str(url.database)))
    engine = sa.create_engine(url, poolclass=pool.QueuePool, pool_size=5, max_overflow=60)

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver starts no transactions of its own: _begin does
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(patience_s * 1000)}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA journal_mode = WAL")
        # With FULL a commit survives a power cut; a trial costs minutes and an fsync milliseconds.
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(conn: Connection) -> None:
        conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get(WRITE_OPTION) else "BEGIN")

    return engine


def _create_private(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise DatabaseUnavailable(
            f"the SQLite file {path} cannot be opened for writing: {error.strerror}",
            remedy="check the path and its permissions",
        ) from error


def _postgres_engine(url: URL) -> Engine:
    try:
        engine = sa.create_engine(url, pool_pre_ping=True, pool_size=5, max_overflow=60, pool_recycle=1800)
    except ModuleNotFoundError as error:
        raise BadDatabaseUrl(
            "PostgreSQL needs the psycopg driver", remedy="pip install 'ratchet-tune[postgres]'"
        ) from error

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        try:
            connection.autocommit = True
            connection.execute("SET TIME ZONE 'UTC'")
            connection.execute(f"SET lock_timeout = '{int(PATIENCE_S)}s'")
            connection.execute(f"SET idle_in_transaction_session_timeout = '{PAUSED_WRITER_S}s'")
            connection.autocommit = False
        except BaseException:
            connection.close()  # a server that shuts down accepts one and ends it; nobody else has it yet
            raise

    return engine


def _listed(value: str | tuple[str, ...] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)
