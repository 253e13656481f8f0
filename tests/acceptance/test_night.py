"""Compressed nights of one minute on a real llama-server: opens, works, stops in time, home back, goes on, finishes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.demo import assets
from api.demo.stage import Stage, build_spec, set_stage
from optimizer import studies
from optimizer.clock import SystemClock
from optimizer.dispatch.inline import InlineWorker
from optimizer.settings import Settings
from optimizer.studies import StudyState
from storage import events, trials, windows
from storage.engine import open_database
from storage.migrate import upgrade
from storage.records import WindowRecord

pytestmark = [pytest.mark.needs("llama_server"), pytest.mark.slow]

NIGHTS = 14


class NightClock(SystemClock):
    """The machine's clock, moved forward: days pass between two nights without anybody waiting for them."""

    def __init__(self, start: datetime) -> None:
        self.offset = start - datetime.now(UTC)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    def jump_to(self, moment: datetime) -> None:
        self.offset = moment - datetime.now(UTC)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with set_stage(assets.prepare(lambda _: None), lambda _: None) as standing:
        yield standing


def test_a_study_goes_on_over_short_nights_and_home_is_back_before_each_ends(stage: Stage, tmp_path: Path) -> None:
    first = (datetime.now(UTC) + timedelta(days=2)).replace(hour=1, minute=0, second=0, microsecond=0)
    clock = NightClock(first - timedelta(seconds=3))
    db = open_database(f"sqlite:///{tmp_path / 'r.db'}")
    upgrade(db)
    with db.write() as conn:
        windows.put(conn, WindowRecord("w1", "short", "0 1 * * *", "UTC", clock.now(), duration_min=1))
    spec = build_spec(stage, trials=12, name="nightly").model_copy(update={"window": "short"})
    spec = spec.model_copy(update={"budget": spec.budget.model_copy(update={"confirm_restarts": 6, "candidates": 1})})
    study = studies.create(db, spec, now=clock.now())
    studies.start(db, study.id, now=clock.now())
    worker = InlineWorker(db, clock=clock, settings=Settings(worker_poll_s=0.2))
    worker.start()
    try:
        for night in range(NIGHTS):
            opens = first + timedelta(days=night)
            clock.jump_to(opens - timedelta(seconds=2))
            state = wait_for_the_end_of_the_night(db, study.id, clock, opens)
            assert clock.now() < opens + timedelta(minutes=1), "the night was not kept"
            assert stage.home_answers(), "home is not back"
            if state == StudyState.FINISHED:
                break
        else:
            pytest.fail(f"not finished after {NIGHTS} nights")
    finally:
        assert worker.stop(60)
    with db.read() as conn:
        rows = trials.list_trials(conn, study.id)
        told = [e.data for e in events.since(conn, 0, study_id=study.id, limit=10_000) if e.kind == "home"]
    db.close()
    assert night >= 1, "one night was enough: nothing was resumed"
    for row in rows:
        assert row.finished_at is not None and row.finished_at.time() < (first + timedelta(minutes=1)).time()
        assert row.state != "interrupted", "a trial was begun that could not finish"
    assert sum(e["state"] == "restored" for e in told) == night + 1


def wait_for_the_end_of_the_night(db: object, study_id: str, clock: NightClock, opens: datetime) -> str:
    """Wait until the study has worked in this night and waits again, or has finished."""
    seen_running = False
    deadline = time.monotonic() + 75
    while time.monotonic() < deadline:
        state = studies.get(db, study_id).state  # type: ignore[arg-type]
        seen_running = seen_running or state == StudyState.RUNNING
        if state == StudyState.FINISHED or (seen_running and state == StudyState.WAITING_WINDOW):
            return state
        assert state not in {StudyState.FAILED, StudyState.NEEDS_ATTENTION}, studies.get(db, study_id).state_reason  # type: ignore[arg-type]
        time.sleep(0.1)
    raise AssertionError(f"the study is still {state} at {clock.now()}")
