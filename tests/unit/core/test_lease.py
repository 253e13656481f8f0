"""The lease keeper: kept alive, lost to another owner, and told about stops within a second."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from optimizer import studies
from optimizer.clock import SystemClock
from optimizer.errors import LeaseLost, Stopped
from optimizer.lease import claim
from storage import leases, windows
from storage.engine import Database
from storage.records import StudyRecord, WindowRecord
from tests.unit.core.test_studies import change, new_study, put_in


@pytest.fixture
def study(db: Database) -> StudyRecord:
    record = new_study(db)
    put_in(db, record, studies.StudyState.RUNNING)
    return record


def take(db: Database, study: StudyRecord, owner: str, ttl_s: float = 60.0, renew_s: float = 10.0, **more: object):  # type: ignore[no-untyped-def]
    return claim(db, study.host, owner, study.id, clock=SystemClock(), ttl_s=ttl_s, renew_s=renew_s, **more)  # type: ignore[arg-type]


def wait_for(what: object, timeout_s: float = 5.0) -> bool:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if what():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def test_a_held_host_cannot_be_claimed_and_a_released_one_can(db: Database, study: StudyRecord) -> None:
    first = take(db, study, "a")
    assert take(db, study, "b") is None
    with first:
        pass
    second = take(db, study, "b")
    assert second.fence == first.fence + 1


def test_a_stop_that_is_asked_reaches_the_worker_within_a_second_or_so(db: Database, study: StudyRecord) -> None:
    with take(db, study, "a") as keeper:
        keeper.check()
        studies.stop(db, study.id, now=datetime.now(UTC))
        assert wait_for(keeper.cancelled)
        with pytest.raises(Stopped, match=studies.STOP_ASKED):
            keeper.check()
        keeper.check_owned()


def test_a_lease_taken_by_another_is_lost(db: Database, study: StudyRecord) -> None:
    with take(db, study, "a", ttl_s=60, renew_s=0.1) as keeper:
        with db.write() as conn:
            later = datetime.now(UTC) + timedelta(hours=1)
            assert leases.claim(conn, study.host, "b", ttl_s=60, now=later) == keeper.fence + 1
        assert wait_for(keeper.cancelled)
        with pytest.raises(LeaseLost):
            keeper.check_owned()


def test_a_worker_that_slept_past_its_lease_knows_without_asking_the_database(db: Database, study: StudyRecord) -> None:
    with take(db, study, "a", ttl_s=0.2, renew_s=30) as keeper:
        time.sleep(0.4)
        with pytest.raises(LeaseLost):
            keeper.check()


def test_the_end_of_the_window_ends_the_work(db: Database, study: StudyRecord) -> None:
    with take(db, study, "a", ends_at=datetime.now(UTC) + timedelta(seconds=0.2)) as keeper:
        keeper.check()
        assert wait_for(keeper.cancelled)
        with pytest.raises(Stopped, match="window"):
            keeper.check()


def test_a_renewal_feeds_the_guard(db: Database, study: StudyRecord) -> None:
    fed: list[int] = []
    with take(db, study, "a", renew_s=0.1) as keeper:
        keeper.on_renew = lambda: fed.append(1)
        assert wait_for(lambda: len(fed) >= 2)


@pytest.mark.parametrize(("window", "enabled", "works"), [("", True, True), ("night", False, False)])
def test_a_window_that_is_taken_away_or_switched_off_reaches_the_worker(
    db: Database, study: StudyRecord, window: str, enabled: bool, works: bool
) -> None:
    now = datetime.now(UTC)
    opens = now - timedelta(minutes=5)
    cron = f"{opens.minute} {opens.hour} * * *"
    with db.write() as conn:
        windows.put(conn, WindowRecord("w", "night", cron, "UTC", now, duration_min=60))
    change(db, study.id, window="night", now=now)
    with take(db, study, "a", ends_at=now + timedelta(minutes=55)) as keeper:
        keeper._watch()
        keeper.check()
        with db.write() as conn:
            windows.update(conn, "w", enabled=enabled)
        change(db, study.id, window=window, now=now)
        keeper._watch()
        assert keeper.cancelled() is not works
        assert works is (keeper.time_left_s() is None)
