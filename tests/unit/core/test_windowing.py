"""Whether a study may work now: with its window, without one, and with one that is switched off."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from optimizer import studies, windowing
from optimizer.errors import BadInput
from storage import windows
from storage.engine import Database
from storage.records import StudyRecord, WindowRecord
from tests.unit.core.test_studies import new_study

OPEN = datetime(2026, 11, 30, 1, 0, tzinfo=UTC)


@pytest.fixture
def db(db: Database) -> Database:
    with db.write() as conn:
        windows.put(conn, WindowRecord("w", "night", "0 1 * * *", "UTC", OPEN, duration_min=60))
        windows.put(conn, WindowRecord("o", "off", "0 1 * * *", "UTC", OPEN, duration_min=60, enabled=False))
    return db


def attached(db: Database, window: str | None) -> StudyRecord:
    study = new_study(db)
    return replace(study, spec={**study.spec, "window": window})


def test_without_a_window_there_is_always_work(db: Database) -> None:
    assert windowing.look(db, attached(db, None), OPEN) == windowing.ALWAYS


def test_an_open_window_says_until_when_and_a_closed_one_when_it_opens(db: Database) -> None:
    study = attached(db, "night")
    inside = windowing.look(db, study, OPEN + timedelta(minutes=5))
    assert inside.open and inside.work_until == OPEN + timedelta(hours=1)
    outside = windowing.look(db, study, OPEN + timedelta(hours=2))
    assert not outside.open and "2026-12-01 01:00 UTC" in outside.reason


def test_a_window_that_is_switched_off_lets_nothing_run_by_day(db: Database) -> None:
    view = windowing.look(db, attached(db, "off"), OPEN + timedelta(minutes=5))
    assert not view.open and "switched off" in view.reason


def test_a_window_that_does_not_exist_is_a_clear_mistake(db: Database) -> None:
    with pytest.raises(BadInput, match="nowhere"):
        windowing.look(db, attached(db, "nowhere"), OPEN)


def test_a_study_that_went_back_to_waiting_does_not_take_the_host_again_in_the_same_opening(db: Database) -> None:
    study = replace(
        attached(db, "night"), state=studies.StudyState.WAITING_WINDOW, updated_at=OPEN + timedelta(minutes=40)
    )
    assert not windowing.look(db, study, OPEN + timedelta(minutes=41)).open
    assert windowing.look(db, study, OPEN + timedelta(days=1, minutes=1)).open
