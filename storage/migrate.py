"""Bring a database's schema to this program's revision, and tell where it stands.

Decides how Alembic is run: from the tree in the repository or the one inside an installed wheel, under a lock so that
several starting workers do not race, and on SQLite without foreign keys, because rebuilding a table there would
otherwise delete what refers to it. Our revision is kept in `ratchet_alembic_version`: Optuna keeps an
`alembic_version` of its own, and neither may see the other's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from alembic import command
from storage import tables
from storage.engine import WRITE_OPTION, Database
from storage.errors import Corrupt, SchemaOutdated, translated

VERSION_TABLE = "ratchet_alembic_version"
MIGRATION_LOCK = 0x4D_49_47_52_41_54_45
"""Key of the advisory lock of migrations on PostgreSQL ("MIGRATE" in ASCII)."""


def tree() -> Path:
    """Return the folder of the migrations: inside an installed package, or in the repository."""
    here = Path(__file__).resolve().parent
    installed = here / "alembic_tree"
    return installed if (installed / "env.py").exists() else here.parent / "alembic"


def head() -> str:
    """Return the newest revision that this program knows."""
    return str(_scripts().get_current_head())


def revisions() -> set[str]:
    """Return every revision that this program knows."""
    return {script.revision for script in _scripts().walk_revisions()}


def current(db: Database) -> str | None:
    """Return the revision of a database, or None for one without our tables."""
    with db.read() as conn:
        return MigrationContext.configure(conn, opts={"version_table": VERSION_TABLE}).get_current_revision()


def check(db: Database) -> None:
    """Make sure that the database has exactly the revision of this program.

    Raises:
        SchemaOutdated: it has not; the remedy says which side to upgrade.
    """
    now, wanted = current(db), head()
    if now == wanted:
        return
    if now is None:
        raise SchemaOutdated(f"{db.name} has no tables of Ratchet yet", remedy="run `ratchet db upgrade`")
    if now not in revisions():
        raise SchemaOutdated(
            f"{db.name} has revision {now}, which this Ratchet does not know", remedy="upgrade Ratchet itself"
        )
    raise SchemaOutdated(
        f"{db.name} has revision {now}, this Ratchet needs {wanted}", remedy="run `ratchet db upgrade`"
    )


def upgrade(db: Database, revision: str = "head") -> str:
    """Bring the schema up to a revision and return it; harmless when it is there already.

    Raises:
        SchemaOutdated: the database was written by a newer Ratchet.
        DatabaseBusy: somebody else is writing for too long.
    """
    if revision == "head":
        now = current(db)
        if now == head():
            return now
        if now is not None and now not in revisions():
            check(db)
    _run(db, lambda config: command.upgrade(config, revision))
    return str(current(db))


def downgrade(db: Database, revision: str) -> str | None:
    """Bring the schema down to a revision (`base` removes all of our tables); returns what it then has."""
    _run(db, lambda config: command.downgrade(config, revision))
    return current(db)


def differences(db: Database) -> list[str]:
    """Return what in the database is not as `tables` says, one line each; empty when all is well."""
    with db.read() as conn:
        context = MigrationContext.configure(conn, opts={"version_table": VERSION_TABLE, "include_object": only_ours})
        return [_describe(item) for item in compare_metadata(context, tables.metadata)]


def only_ours(_item: Any, name: str | None, kind: str, reflected: bool, _compared_to: Any) -> bool:
    """Keep tables of others, like Optuna's, out of every comparison: autogenerate would propose to drop them."""
    return not (kind == "table" and reflected and name not in tables.metadata.tables)


def _describe(item: Any) -> str:
    change = item[0] if isinstance(item, list) else item
    return " ".join(str(part) for part in change)


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(tree()))


def _run(db: Database, action: Callable[[Config], None]) -> None:
    with translated(), alone(db) as conn:
        config = Config()
        config.set_main_option("script_location", str(tree()).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = conn
        action(config)


@contextmanager
def alone(db: Database) -> Iterator[Connection]:
    """Yield a connection in a transaction that nobody else writes beside."""
    with db.engine.connect() as raw:
        if db.is_sqlite:
            raw.exec_driver_sql("PRAGMA foreign_keys = OFF")
            raw.rollback()
        conn = raw.execution_options(**{WRITE_OPTION: True})
        try:
            with conn.begin():
                if not db.is_sqlite:
                    conn.execute(sa.text("SET LOCAL lock_timeout = '300s'"))
                    conn.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
                yield conn
                _refuse_orphans(conn)
        finally:
            raw.invalidate()  # never back to the pool with foreign keys off


def _refuse_orphans(conn: Connection) -> None:
    if conn.dialect.name == "sqlite":
        orphans = conn.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        if orphans:
            raise Corrupt(f"a row of {orphans[0][0]} would refer to nothing; the migration was rolled back")
