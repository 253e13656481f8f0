"""Copies of a whole database while it is in use, and putting one back.

Decides how a copy is made consistent (SQLite's online backup, `pg_dump`) and what a restore must change: the fences of
all hosts jump ahead, because a worker of the time after the backup may still hold one, and nobody holds a lease.
SQLite: two files, ours and Optuna's beside it. Optuna's is copied first, so that ours is never the older one: what is
recorded and not told is told at the next start.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from storage import migrate, tables
from storage.engine import Database
from storage.errors import Corrupt, DatabaseBusy, InvalidValue, Missing, SchemaOutdated, StorageError, translated

FENCE_JUMP = 1_000_000
"""Far more than the claims of any host between a backup and its return."""
TOOL_TIMEOUT_S = 3600
BUSY = frozenset({5, 6})
"""SQLITE_BUSY and SQLITE_LOCKED."""
NOTHING = Path(":memory:")
"""An empty SQLite database."""


class ToolFailed(StorageError):
    """`pg_dump` or `pg_restore` is missing or failed."""


def backup(db: Database, target: Path) -> list[Path]:
    """Copy the database to `target` while it is in use; return the files written.

    An existing target is replaced only when the copy is complete and sound.

    Raises:
        DiskFull: no room for the copy; an older target is still there.
        Corrupt: the database itself is damaged.
        InvalidValue: the target is the database itself, or cannot be written.
        SchemaOutdated: there is nothing of Ratchet in the database.
        ToolFailed: PostgreSQL's tools are missing or failed.
    """
    target = target.expanduser().absolute()
    _refuse_itself(db, target)
    if migrate.current(db) is None:
        raise SchemaOutdated(
            f"{db.name} has no tables of Ratchet, so there is nothing to keep",
            remedy="check --db, RATCHET_DB_URL and RATCHET_HOME: this may be another database than the service's",
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return _written(db, target)
    except OSError as error:
        raise InvalidValue(f"{target} cannot be written: {error.strerror}", remedy="check the path") from error


def _written(db: Database, target: Path) -> list[Path]:
    if db.path is None or db.optuna_path is None:
        return [_dump(db, target)]
    written = []
    if db.optuna_path.exists():
        written.append(_copy_file(db.optuna_path, optuna_copy(target), db.patience_s))
    return [_copy_file(db.path, target, db.patience_s), *written]


def _refuse_itself(db: Database, path: Path) -> None:
    """A copy takes the place of its target, and whoever has the old file open would write into nothing from then on."""
    own = {p.resolve() for p in (db.path, db.optuna_path) if p is not None}
    if own & {path.resolve(), optuna_copy(path).resolve()}:
        raise InvalidValue(f"{path} is the database itself", remedy="name another file")


def optuna_copy(target: Path) -> Path:
    """Return the path of Optuna's file beside a SQLite backup."""
    return target.with_suffix(f".optuna{target.suffix}")


def restore(db: Database, source: Path, *, now: datetime, force: bool = False) -> None:
    """Put a backup in place of everything in the database, at once or not at all.

    Every lease ends and every fence jumps ahead, so that a worker of before can write nothing more.

    Without a copy of Optuna's file beside the backup, the search of every study is told again from our rows.

    Raises:
        Missing: there is no such file.
        InvalidValue: it is the database itself.
        Corrupt: it is not a sound backup.
        DatabaseBusy: a worker holds a lease now, and `force` was not given; or somebody keeps a file locked.
    """
    source = source.expanduser().absolute()
    if not source.is_file():
        raise Missing(f"there is no backup {source}", remedy="check the path")
    _refuse_itself(db, source)
    if not force:
        _refuse_while_in_use(db, now)
    old_fences = _fences(db)
    if db.path is None or db.optuna_path is None:
        _undump(db, source)
    else:
        _check_file(source)
        search = optuna_copy(source)
        if search.is_file():
            with translated():
                _check_pages(search)
        if search.is_file() or db.optuna_path.exists():
            _pour(search if search.is_file() else NOTHING, db.optuna_path, db.patience_s)
        _pour(source, db.path, db.patience_s)
    db.close()
    _jump_fences(db, old_fences, now)


def _refuse_while_in_use(db: Database, now: datetime) -> None:
    if migrate.current(db) is None:
        return
    query = sa.select(tables.leases.c.host).where(tables.leases.c.owner.is_not(None), tables.leases.c.until > now)
    with db.read() as conn:
        hosts = [row.host for row in conn.execute(query)]
    if hosts:
        raise DatabaseBusy(
            f"a worker is busy on {', '.join(hosts)}",
            remedy="pause the studies and stop the workers first, or use --force",
        )


def _fences(db: Database) -> dict[str, int]:
    if migrate.current(db) is None:
        return {}
    with db.read() as conn:
        return {row.host: row.fence for row in conn.execute(sa.select(tables.leases.c.host, tables.leases.c.fence))}


def _jump_fences(db: Database, old: dict[str, int], now: datetime) -> None:
    with db.write() as conn:
        for row in conn.execute(sa.select(tables.leases.c.host, tables.leases.c.fence)).all():
            fence = max(row.fence, old.get(row.host, 0)) + FENCE_JUMP
            query = sa.update(tables.leases).where(tables.leases.c.host == row.host)
            conn.execute(query.values(fence=fence, owner=None, study_id=None))
            old.pop(row.host, None)
        for host, fence in old.items():
            row_of_host = {"host": host, "fence": fence + FENCE_JUMP, "owner": None, "until": now}
            conn.execute(sa.insert(tables.leases).values(row_of_host))


def _copy_file(source: Path, target: Path, patience_s: float) -> Path:
    """Copy one SQLite file that may be in use, check the copy, and only then give it its name."""
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with translated():
            _make_private(partial)
            with closing(_connected(source, patience_s)) as old, closing(sqlite3.connect(partial)) as new:
                _copy_pages(old, new, patience_s)
                # A single file is easier to keep than one with a write-ahead log beside it.
                new.execute("PRAGMA journal_mode = DELETE")
            _check_pages(partial)
            with partial.open("rb") as written:
                os.fsync(written.fileno())
            partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _make_private(path: Path) -> None:
    """Create a file that only its owner reads: there are hashes of keys and variables of servers in it."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _connected(path: Path, patience_s: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=patience_s)


def _copy_pages(old: sqlite3.Connection, new: sqlite3.Connection, patience_s: float) -> None:
    """Copy everything in one step, which reads one moment of a file in WAL and keeps no writer waiting.

    In several, it would begin anew after every write of another process, and come to no end beside a busy one.
    """
    end = time.monotonic() + patience_s

    def look(status: int, _left: int, _pages: int) -> None:
        if status in BUSY and time.monotonic() >= end:  # by itself it would try for ever
            raise DatabaseBusy(
                "another process has locked the SQLite file for too long",
                remedy="stop the service and whatever else has it open, then try again",
            )

    old.backup(new, progress=look)


def _check_pages(path: Path) -> None:
    with closing(sqlite3.connect(path)) as conn:
        result = conn.execute("PRAGMA integrity_check").fetchone()[0]
    if result != "ok":
        raise Corrupt(f"{path} is damaged: {result}", remedy="look for an older backup; the disk may be failing")


def _check_file(path: Path) -> None:
    """Refuse what is not a sound database of ours."""
    with translated():
        _check_pages(path)
        with closing(sqlite3.connect(path)) as conn:
            query = "SELECT count(*) FROM sqlite_master WHERE name = ?"
            if not conn.execute(query, (migrate.VERSION_TABLE,)).fetchone()[0]:
                raise Corrupt(f"{path} is a SQLite file, but not a backup of Ratchet", remedy="check the path")


def _pour(source: Path, target: Path, patience_s: float) -> None:
    """Replace the content of a SQLite file, page by page under its lock: also right while others have it open."""
    with translated(), closing(sqlite3.connect(source)) as old:
        with closing(_connected(target, patience_s)) as new:
            _copy_pages(old, new, patience_s)
        with closing(_connected(target, patience_s)) as new:
            new.execute("PRAGMA journal_mode = WAL")


def _dump(db: Database, target: Path) -> Path:
    partial = target.with_name(f"{target.name}.partial")
    try:
        _make_private(partial)
        _tool(db, "pg_dump", "--format=custom", "--no-owner", f"--file={partial}")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _undump(db: Database, source: Path) -> None:
    db.close()
    arguments = ("--clean", "--if-exists", "--no-owner", "--single-transaction", "--exit-on-error", str(source))
    _tool(db, "pg_restore", *arguments)


def _tool(db: Database, name: str, *arguments: str) -> None:
    """Run one of PostgreSQL's own tools on the database; its password goes by the environment, never by `ps`."""
    folder = os.environ.get("RATCHET_PG_BIN")
    found = str(Path(folder, name)) if folder else shutil.which(name)
    if found is None or not Path(found).exists():
        raise ToolFailed(f"{name} is not installed", remedy="install PostgreSQL's client tools, or set RATCHET_PG_BIN")
    url = db.engine.url
    environment = {**os.environ, **({"PGPASSWORD": str(url.password)} if url.password else {})}
    address = url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    try:
        done = subprocess.run(
            [found, f"--dbname={address}", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        remedy = "stop what has the database open (a lock is waited for), or use the tool by hand"
        raise ToolFailed(f"{name} did not end within {TOOL_TIMEOUT_S} s", remedy=remedy) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        remedy = f"use the {name} of the server's version (RATCHET_PG_BIN)"
        if name == "pg_restore":
            remedy += "; a backup of an older Ratchet goes into a new, empty database"
        raise ToolFailed(f"{name} failed: {last}", remedy=remedy)
