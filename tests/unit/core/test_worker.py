"""The worker's boundary: every way in which work can end leaves a study in a state with a reason."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from optimizer import studies, worker
from optimizer.clock import SystemClock
from optimizer.dispatch.inline import InlineWorker
from optimizer.errors import HostBusy, NeedsAttention, PortTaken, Stopped, Unreachable
from optimizer.lease import LeaseKeeper
from optimizer.settings import Settings
from optimizer.spec import parse_study
from optimizer.studies import StudyState
from storage import hosts, shares, windows
from storage.engine import Database
from storage.errors import DiskFull
from storage.records import StudyRecord, WindowRecord
from tests.unit.core.test_studies import DEMO

QUICK = Settings(worker_poll_s=0.05)
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def queued(db: Database, **changes: Any) -> StudyRecord:
    data = yaml.safe_load(DEMO.read_text()) | {"name": "s", **changes}
    now = SystemClock().now()
    return studies.start(db, studies.create(db, parse_study(data), now=now).id, now=now)


def queued_by_night(db: Database) -> StudyRecord:
    with db.write() as conn:
        windows.put(conn, WindowRecord("w", "by-night", "0 1 * * *", "UTC", NOW, duration_min=60, enabled=False))
    return queued(db, window="by-night")


class FakeRun:
    """What `open_run` returns, with nothing behind it."""

    def __init__(self, db: Database, study: StudyRecord, keeper: LeaseKeeper) -> None:
        self.db, self.study, self.lease = db, study, keeper
        self.host = parse_study(study.spec).host
        self.closed = False

    def close(self) -> None:
        self.closed = True


def play(db: Database, monkeypatch: pytest.MonkeyPatch, error: Exception | None, restore: Exception | str = "") -> Any:
    """Advance a queued study whose phases and restore end as given; return its row."""
    study = queued(db)
    monkeypatch.setattr(worker, "open_run", lambda db, study, spec, keeper, clock: FakeRun(db, study, keeper))

    def phases(run: Any) -> None:
        if error is not None:
            raise error

    def finish(run: Any, *, finished: bool) -> str:
        if isinstance(restore, Exception):
            raise restore
        return restore

    monkeypatch.setattr(worker.phases, "run_study", phases)
    monkeypatch.setattr(worker.home_server, "finish", finish)
    worker.advance(db, study.id, owner="t", settings=QUICK)
    return studies.get(db, study.id)


def test_a_study_that_ran_through_is_finished(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    row = play(db, monkeypatch, None)
    assert row.state == StudyState.FINISHED and row.started_at is not None and row.finished_at is not None


def test_a_winner_that_was_not_adopted_is_what_the_owner_reads(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    row = play(db, monkeypatch, None, restore="the winner is not adopted")
    assert (row.state, row.state_reason) == (StudyState.FINISHED, "the winner is not adopted")


def test_a_pause_pauses_and_a_stop_finishes(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(db, monkeypatch, Stopped(studies.PAUSE_ASKED)).state == StudyState.PAUSED


@pytest.mark.parametrize(("taken", "state"), [(False, StudyState.PAUSED), (True, StudyState.NEEDS_ATTENTION)])
def test_a_host_out_of_reach_is_only_harmless_while_home_was_not_touched(
    db: Database, monkeypatch: pytest.MonkeyPatch, taken: bool, state: StudyState
) -> None:
    study = queued(db)
    with db.write() as conn:
        shares.update(conn, study.id, study.host, taken=taken)

    def out_of_reach(*_: Any) -> None:
        raise Unreachable(study.host, "no route", remedy="look")

    monkeypatch.setattr(worker, "open_run", out_of_reach)
    worker.advance(db, study.id, owner="t", settings=QUICK)
    row = studies.get(db, study.id)
    assert row.state == state and "no route (look)" in row.state_reason


@pytest.mark.parametrize(
    ("asked", "window", "state"),
    [
        (None, "by-night", StudyState.WAITING_WINDOW),
        (studies.stop, "by-night", StudyState.FINISHED),
        (studies.pause, "by-night", StudyState.PAUSED),
        (None, "gone", StudyState.FAILED),
        (studies.stop, "gone", StudyState.FINISHED),
    ],
)
def test_home_left_by_a_dead_worker_is_put_back_when_no_window_is_open(
    db: Database, monkeypatch: pytest.MonkeyPatch, asked: Any, window: str, state: StudyState
) -> None:
    study = queued_by_night(db)
    with db.write() as conn:
        shares.update(conn, study.id, study.host, taken=True)
        if window == "gone":
            windows.delete(conn, "w")
    studies.move(db, study.id, {StudyState.QUEUED}, StudyState.RUNNING, "", NOW)
    if asked is not None:
        asked(db, study.id, now=NOW)
    done: list[str] = []
    monkeypatch.setattr(worker, "open_run", lambda db, study, spec, keeper, clock: FakeRun(db, study, keeper))
    monkeypatch.setattr(worker.phases, "run_study", lambda run: done.append("worked"))
    monkeypatch.setattr(worker.home_server, "finish", lambda run, finished: done.append("home"))
    worker.advance(db, study.id, owner="t", settings=QUICK)
    assert done == ["home"]
    assert studies.get(db, study.id).state == state


def test_the_end_of_the_window_waits_for_the_next(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(db, monkeypatch, Stopped("the window closes")).state == StudyState.WAITING_WINDOW


def test_a_known_error_fails_the_study_with_what_to_do(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    row = play(db, monkeypatch, PortTaken("h", "another server is there", remedy="stop it"))
    assert row.state == StudyState.FAILED and "another server is there (stop it)" in row.state_reason


def test_what_may_work_another_time_pauses_the_study(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    row = play(db, monkeypatch, HostBusy("h", "another Ratchet is there", remedy="stop it"))
    assert row.state == StudyState.PAUSED and "another Ratchet is there (stop it)" in row.state_reason


def test_a_fault_of_ratchet_fails_the_study_and_home_is_still_put_back(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = play(db, monkeypatch, ZeroDivisionError("oops"))
    assert row.state == StudyState.FAILED and "fault of Ratchet" in row.state_reason


def test_a_database_that_fails_pauses_the_study(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    row = play(db, monkeypatch, DiskFull("no room", remedy="free some space"))
    assert row.state == StudyState.PAUSED and "free some space" in row.state_reason


def test_a_stop_that_cannot_be_proved_marks_the_host(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    row = play(db, monkeypatch, NeedsAttention("demo-host", "it does not die", remedy="reboot"))
    assert row.state == StudyState.NEEDS_ATTENTION
    with db.read() as conn:
        assert hosts.get(conn, "demo-host").needs_attention == "it does not die"


def test_a_home_that_does_not_come_back_is_what_the_owner_hears(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    row = play(db, monkeypatch, None, restore=NeedsAttention("demo-host", "home is silent", remedy="look"))
    assert row.state == StudyState.NEEDS_ATTENTION and "home could not be restored: home is silent" in row.state_reason


def test_a_study_ended_by_another_worker_meanwhile_is_not_run_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = queued(db)
    ran: list[str] = []
    monkeypatch.setattr(worker, "open_run", lambda *a: ran.append("ran"))
    real = worker.claim

    def slow_claim(*args: Any, **more: Any) -> Any:
        keeper = real(*args, **more)
        studies.move(db, study.id, {StudyState.QUEUED}, StudyState.FINISHED, "", SystemClock().now())
        return keeper

    monkeypatch.setattr(worker, "claim", slow_claim)
    assert worker.advance(db, study.id, owner="t", settings=QUICK) is None
    assert ran == []


def test_a_window_that_is_gone_fails_the_study_and_not_the_worker(db: Database) -> None:
    study = queued_by_night(db)
    with db.write() as conn:
        windows.delete(conn, "w")
    machine = InlineWorker(db, settings=QUICK)
    machine.start()
    end = time.monotonic() + 10
    while studies.get(db, study.id).state == StudyState.QUEUED and time.monotonic() < end:
        time.sleep(0.05)
    assert machine.stop(10)
    row = studies.get(db, study.id)
    assert row.state == StudyState.FAILED and "'by-night'" in row.state_reason


def test_nothing_is_started_on_a_host_that_needs_attention_until_a_human_has_looked(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = play(db, monkeypatch, NeedsAttention("demo-host", "GPU 0 still holds 20 GiB", remedy="look"))
    other = queued(db, name="other")
    opened: list[str] = []
    monkeypatch.setattr(worker, "open_run", lambda db, study, *rest: opened.append(study.name))
    worker.advance(db, other.id, owner="t", settings=QUICK)
    row = studies.get(db, other.id)
    assert row.state == StudyState.NEEDS_ATTENTION and "GPU 0 still holds 20 GiB" in row.state_reason and not opened
    assert "ratchet host restore demo-host" in row.state_reason
    studies.resume(db, first.id, now=SystemClock().now())
    with db.read() as conn:
        assert hosts.get(conn, "demo-host").needs_attention == ""
