"""Lets one process at a time open a database whose tables another library makes: it looks first and creates then.

Decides how processes keep apart: by the file's folder on SQLite, by an advisory lock on PostgreSQL.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from storage.errors import translated

LOCK = 0x4F_50_54_55
"""Key of the advisory lock ("OPTU" in ASCII)."""
PATIENCE = "60s"
_here = threading.Lock()


@contextmanager
def one_at_a_time(url: str) -> Iterator[None]:
    """Keep other threads and processes from opening the database at `url` meanwhile.

    Raises:
        DatabaseUnavailable, DatabaseBusy: it cannot be reached, or another one holds it for more than a minute.
    """
    with _here, _sqlite(Path(url.removeprefix("sqlite:///"))) if url.startswith("sqlite") else _postgres(url):
        yield


@contextmanager
def _sqlite(path: Path) -> Iterator[None]:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextmanager
def _postgres(url: str) -> Iterator[None]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with translated():
        connection = engine.connect()
    with connection:
        with translated():
            connection.execute(sa.text(f"SET lock_timeout = '{PATIENCE}'"))
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        yield
