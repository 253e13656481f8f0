"""What carries work to workers: every study is looked at, one at a time for each host, and dead machines leave nothing.

The work itself is replaced by one that only holds the host's lease for a while: `advance` has tests of its own.
"""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import text

from optimizer import lease, worker
from optimizer.clock import SystemClock
from optimizer.settings import Settings
from storage import hosts, leases, studies
from storage.engine import Database
from storage.records import HostRecord, StudyRecord

SETTINGS = Settings(lease_ttl_s=2.0, lease_renew_s=0.2, worker_poll_s=0.1)
CLOCK = SystemClock()


class Work:
    """Stands for `worker.advance`: holds the host for a while, then finishes the study. Remembers who did what when."""

    def __init__(self, seconds: float = 0.1) -> None:
        self.seconds = seconds
        self.spans: list[tuple[str, str, float, float]] = []
        self.until_interrupted = False
        self.meeting: threading.Barrier | None = None
        """Where the first work of each host waits for that of the others."""
        self.began = 0

    def __call__(self, db: Database, study_id: str, *, owner: str, settings: Settings, **kwargs: Any) -> None:
        with db.read() as conn:
            study = studies.get(conn, study_id)
        ttl_s, renew_s = settings.lease_ttl_s, settings.lease_renew_s
        host = kwargs.get("host") or study.host
        keeper = lease.claim(db, host, owner, study_id, clock=CLOCK, ttl_s=ttl_s, renew_s=renew_s)
        if keeper is None:
            return
        kwargs["on_lease"](keeper)
        with keeper:
            if (
                state_of(db, study_id) not in worker.WORKABLE
            ):  # asked now, because who had the host before may have ended it
                return
            began = time.monotonic()
            self.began += 1
            if self.meeting is not None and all(span[1] != host for span in self.spans):
                self.meeting.wait(30)
            while time.monotonic() - began < self.seconds or self.until_interrupted:
                if keeper.interrupted:
                    break
                time.sleep(0.02)
            self.spans.append((study_id, host, began, time.monotonic()))
            state = "paused" if keeper.interrupted else "finished"
            with db.write() as conn:
                studies.move(conn, study_id, from_states=list(worker.WORKABLE), to=state, now=CLOCK.now())


def queue(db: Database, study_id: str, *names: str, priority: int = 0, state: str = "queued") -> None:
    with db.write() as conn:
        for host in names:
            if hosts.find(conn, host) is None:
                hosts.put(conn, HostRecord(host, {}, CLOCK.now()))
        record = StudyRecord(study_id, study_id, state, names[0], "sglang", {}, CLOCK.now(), priority=priority)
        studies.create(conn, record, hosts=names)


def state_of(db: Database, study_id: str) -> str:
    with db.read() as conn:
        return studies.get(conn, study_id).state


def wait_until(condition: Callable[[], bool], *, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def make_inline(db: Database, name: str) -> Any:
    from optimizer.dispatch.inline import InlineWorker

    return InlineWorker(db, name=name, settings=SETTINGS)


def make_procrastinate(db: Database, name: str) -> Any:
    from optimizer.dispatch.procrastinate import ProcrastinateWorker

    return ProcrastinateWorker(db, name=name, settings=SETTINGS)


Make = Callable[[Database, str], Any]
NEEDS = pytest.mark.needs("postgres")


@pytest.fixture(
    params=[
        "inline-sqlite",
        pytest.param("inline-postgres", marks=NEEDS),
        pytest.param("procrastinate-postgres", marks=NEEDS),
    ]
)
def kind(request: pytest.FixtureRequest) -> tuple[Database, Make]:
    """A database, and how workers on it are made."""
    how, _, backend = request.param.partition("-")
    db: Database = request.getfixturevalue(f"{backend}_db")
    return db, make_inline if how == "inline" else make_procrastinate


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    done = Work()
    monkeypatch.setattr(worker, "advance", done)
    return done


class Started:
    """Workers that are stopped at the end of the test."""

    def __init__(self) -> None:
        self.workers: list[Any] = []

    def __call__(self, made: Any) -> Any:
        made.start()
        self.workers.append(made)
        return made


@pytest.fixture
def started() -> Iterator[Started]:
    keep = Started()
    yield keep
    for one in keep.workers:
        one.stop(20)


def test_what_is_queued_is_worked_on_and_what_is_not_is_left(
    kind: tuple[Database, Make], work: Work, started: Started
) -> None:
    db, make = kind
    queue(db, "a", "box-1")
    queue(db, "b", "box-2", state="paused")
    started(make(db, "w"))
    wait_until(lambda: state_of(db, "a") == "finished")
    queue(db, "c", "box-1")
    started.workers[0].wake()
    wait_until(lambda: state_of(db, "c") == "finished")
    assert state_of(db, "b") == "paused"
    assert [span[0] for span in work.spans] == ["a", "c"]


def test_a_crash_while_looking_for_work_does_not_end_the_worker(
    kind: tuple[Database, Make], work: Work, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, make = kind
    queue(db, "s1", "a")
    module = importlib.import_module(make(db, "name").__module__)
    sound, looks = module.workable, []

    def crash_first(*args: Any) -> Any:
        looks.append(args)
        if len(looks) == 1:
            raise ValueError("a row that cannot be read")
        return sound(*args)

    monkeypatch.setattr(module, "workable", crash_first)
    machine = started(make(db, "one"))
    wait_until(lambda: state_of(db, "s1") == "finished")
    assert machine.alive()


def test_hosts_go_side_by_side_and_each_one_study_at_a_time(
    kind: tuple[Database, Make], work: Work, started: Started
) -> None:
    db, make = kind
    work.meeting = threading.Barrier(2)  # breaks, and its study stays as it is, when the other host does not come
    for index in range(6):
        queue(db, f"s{index}", f"box-{index % 2}")
    for name in ("w1", "w2"):
        started(make(db, name))
    wait_until(lambda: len(work.spans) == 6)
    by_host: dict[str, list[tuple[float, float]]] = {}
    for _, host, began, ended in sorted(work.spans, key=lambda span: span[2]):
        by_host.setdefault(host, []).append((began, ended))
    for spans in by_host.values():
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    assert sorted(span[0] for span in work.spans) == [f"s{index}" for index in range(6)], "nothing twice"


def test_a_study_over_several_hosts_is_worked_on_everywhere_at_once(
    kind: tuple[Database, Make], work: Work, started: Started
) -> None:
    db, make = kind
    work.until_interrupted = True
    queue(db, "wide", "box-1", "box-2", "box-3")
    for name in ("w1", "w2"):
        started(make(db, name))
    wait_until(lambda: work.began == 3)
    for one in started.workers:
        assert one.stop(20)
    assert sorted(span[1] for span in work.spans) == ["box-1", "box-2", "box-3"]


def test_an_urgent_study_goes_first(kind: tuple[Database, Make], work: Work, started: Started) -> None:
    db, make = kind
    queue(db, "usual", "box")
    queue(db, "urgent", "box", priority=5)
    started(make(db, "w"))
    wait_until(lambda: len(work.spans) == 2)
    assert [span[0] for span in work.spans] == ["urgent", "usual"]


def test_stopping_a_worker_pauses_its_work_and_waits_for_it(
    kind: tuple[Database, Make], work: Work, started: Started
) -> None:
    db, make = kind
    work.until_interrupted = True
    queue(db, "a", "box")
    one = started(make(db, "w"))
    wait_until(lambda: work.began == 1)
    assert one.stop(20)
    assert state_of(db, "a") == "paused"
    assert _lease_of(db, "box") is None
    assert not [t for t in threading.enumerate() if t.name.startswith(("dispatch", "lease-"))]


def _lease_of(db: Database, host: str) -> object:
    with db.read() as conn:
        return leases.get(conn, host)


def test_a_study_whose_host_is_held_elsewhere_waits_for_the_lease(
    kind: tuple[Database, Make], work: Work, started: Started
) -> None:
    db, make = kind
    queue(db, "a", "box")
    with db.write() as conn:
        leases.claim(conn, "box", "dead machine", ttl_s=1.0, now=CLOCK.now())
    began = time.monotonic()
    started(make(db, "w"))
    wait_until(lambda: state_of(db, "a") == "finished")
    assert time.monotonic() - began > 0.8


@NEEDS
def test_a_job_of_a_killed_machine_goes_to_another(postgres_db: Database, work: Work, started: Started) -> None:
    queue(postgres_db, "a", "box")
    command = [sys.executable, "-m", "tests.contract.dispatch.machine", postgres_db.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as machine:
        try:
            assert machine.stdout is not None
            assert any(line.strip() == "working" for line in machine.stdout)
        finally:
            machine.send_signal(signal.SIGKILL)
    started(make_procrastinate(postgres_db, "w"))
    # A heartbeat comes every 10 s; make the dead one old at once.
    with postgres_db.write() as conn:
        conn.execute(text("UPDATE procrastinate.procrastinate_workers SET last_heartbeat = now() - interval '1 hour'"))
    wait_until(lambda: state_of(postgres_db, "a") == "finished")
    assert work.spans[0][0] == "a"


@NEEDS
def test_jobs_that_are_lost_or_doubled_do_no_harm(postgres_db: Database, work: Work, started: Started) -> None:
    from optimizer.dispatch.procrastinate import ensure_schema

    ensure_schema(postgres_db)
    work.seconds = 0.3
    queue(postgres_db, "a", "box")
    with postgres_db.write() as conn:
        conn.execute(text("SET LOCAL search_path = procrastinate"))
        for lock in ("x", "y"):
            conn.execute(
                text(
                    "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args, status) VALUES"
                    " ('studies', 'advance', :lock, '{\"study_id\": \"a\", \"host\": \"box\"}', 'todo')"
                ),
                {"lock": lock},
            )
    started(make_procrastinate(postgres_db, "w1"))
    started(make_procrastinate(postgres_db, "w2"))
    wait_until(lambda: state_of(postgres_db, "a") == "finished")
    queue(postgres_db, "b", "box")
    with postgres_db.write() as conn:
        conn.execute(text("SET LOCAL search_path = procrastinate"))
        conn.execute(text("DELETE FROM procrastinate_jobs WHERE status = 'todo'"))
    wait_until(lambda: state_of(postgres_db, "b") == "finished")
    assert [span[0] for span in work.spans] == ["a", "b"]


@NEEDS
def test_jobs_of_another_version_are_replaced(postgres_db: Database) -> None:
    from optimizer.dispatch.procrastinate import ensure_schema

    ensure_schema(postgres_db)
    with postgres_db.write() as conn:
        conn.execute(text("COMMENT ON SCHEMA procrastinate IS 'procrastinate 1.0'"))
        conn.execute(text("DROP TABLE procrastinate.procrastinate_events"))
    ensure_schema(postgres_db)
    with postgres_db.read() as conn:
        assert conn.execute(text("SELECT count(*) FROM procrastinate.procrastinate_events")).scalar_one() == 0


@NEEDS
def test_the_database_restarts_while_a_study_is_worked_on(postgres_db: Database, work: Work, started: Started) -> None:
    from optimizer.dispatch.procrastinate import ProcrastinateWorker
    from tests.integration.storage.test_storage_faults import restart

    if os.environ.get("RATCHET_TEST_POSTGRES_URL"):
        pytest.skip("only a server of the tests' own can be restarted")
    work.seconds = 1.5
    queue(postgres_db, "a", "box-1")
    patient = SETTINGS.model_copy(update={"lease_ttl_s": 60.0})
    started(ProcrastinateWorker(postgres_db, name="w", settings=patient))
    wait_until(lambda: _lease_of(postgres_db, "box-1") is not None)
    restart(postgres_db, "fast")
    queue(postgres_db, "b", "box-2")
    wait_until(lambda: {state_of(postgres_db, "a"), state_of(postgres_db, "b")} == {"finished"}, seconds=60)
    assert sorted(span[0] for span in work.spans) == ["a", "b"]
