"""The state machine of a study: only the moves of the table, each idempotent, impossible ones refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer import studies
from optimizer.errors import Conflict, NotFound
from optimizer.spec import parse_study
from optimizer.studies import ALLOWED, StudyState
from storage import events, hosts
from storage import studies as rows
from storage.engine import Database
from storage.records import StudyRecord

NOW = datetime(2026, 11, 29, 22, 0, tzinfo=UTC)
DEMO = Path(__file__).parents[3] / "examples" / "demo.yaml"
S = StudyState


def new_study(db: Database, name: str = "s") -> StudyRecord:
    data = yaml.safe_load(DEMO.read_text()) | {"name": name}
    return studies.create(db, parse_study(data), now=NOW)


def change(db: Database, study_id: str, **changes: Any) -> StudyRecord:
    """Change a study's window or priority, as the API does."""
    with db.write() as conn:
        return studies.change_in(conn, rows.get(conn, study_id), **changes)


def put_in(db: Database, record: StudyRecord, state: StudyState) -> None:
    path = {
        S.CREATED: [],
        S.QUEUED: [S.QUEUED],
        S.RUNNING: [S.QUEUED, S.RUNNING],
        S.STOPPING: [S.QUEUED, S.RUNNING, S.STOPPING],
        S.WAITING_WINDOW: [S.QUEUED, S.WAITING_WINDOW],
        S.PAUSED: [S.QUEUED, S.PAUSED],
        S.FAILED: [S.QUEUED, S.FAILED],
        S.NEEDS_ATTENTION: [S.QUEUED, S.NEEDS_ATTENTION],
        S.FINISHED: [S.FINISHED],
    }[state]
    for step in path:
        assert studies.move(db, record.id, set(S), step, "", NOW)


def test_a_new_study_registers_its_inline_host_and_tells_an_event(db: Database) -> None:
    record = new_study(db)
    assert record.state == S.CREATED
    with db.read() as conn:
        assert [e.kind for e in events.since(conn, 0, study_id=record.id)] == ["study"]


def test_an_inline_host_does_not_change_the_host_under_a_study_that_works_there(db: Database) -> None:
    data = yaml.safe_load(DEMO.read_text()) | {"name": "second"}
    data["host"] = {**data["host"], "run_dir": "/elsewhere"}
    first = new_study(db)
    put_in(db, first, S.RUNNING)
    with db.read() as conn:
        (before,) = hosts.list_hosts(conn)
    with pytest.raises(Conflict, match="is used by s"):
        studies.create(db, parse_study(data), now=NOW)
    with db.read() as conn:
        assert hosts.list_hosts(conn) == [before]
    assert studies.move(db, first.id, set(S), S.PAUSED, "", NOW)
    studies.create(db, parse_study(data), now=NOW)
    with db.read() as conn:
        assert hosts.get(conn, before.name).entry["run_dir"] == "/elsewhere"


def test_a_second_study_of_the_same_name_is_a_conflict_and_writes_nothing(db: Database) -> None:
    new_study(db)
    with pytest.raises(Conflict, match="exists"):
        new_study(db)


def test_a_named_host_must_be_registered(db: Database) -> None:
    data = yaml.safe_load(DEMO.read_text()) | {"host": "nowhere"}
    with pytest.raises(NotFound, match="nowhere"):
        studies.create(db, parse_study(data), now=NOW)


@pytest.mark.parametrize("verb", [studies.start, studies.pause, studies.stop])
def test_asking_twice_is_harmless(db: Database, verb: Callable[..., StudyRecord]) -> None:
    record = new_study(db)
    put_in(db, record, S.RUNNING)
    first = verb(db, record.id, now=NOW)
    assert verb(db, record.id, now=NOW) == first


@pytest.mark.parametrize(
    ("state", "verb", "lands"),
    [
        (S.CREATED, studies.start, S.QUEUED),
        (S.QUEUED, studies.pause, S.PAUSED),
        (S.RUNNING, studies.pause, S.STOPPING),
        (S.RUNNING, studies.stop, S.STOPPING),
        (S.STOPPING, studies.stop, S.STOPPING),
        (S.WAITING_WINDOW, studies.stop, S.FINISHED),
        (S.PAUSED, studies.resume, S.QUEUED),
        (S.FAILED, studies.resume, S.QUEUED),
        (S.NEEDS_ATTENTION, studies.start, S.QUEUED),
        (S.PAUSED, studies.stop, S.FINISHED),
    ],
)
def test_what_is_asked_lands(
    db: Database, state: StudyState, verb: Callable[..., StudyRecord], lands: StudyState
) -> None:
    record = new_study(db)
    put_in(db, record, state)
    assert verb(db, record.id, now=NOW).state == lands


@pytest.mark.parametrize(
    ("state", "verb"),
    [
        (S.FINISHED, studies.start),
        (S.FINISHED, studies.pause),
        (S.CREATED, studies.resume),
        (S.STOPPING, studies.start),
    ],
)
def test_an_impossible_move_is_a_conflict_with_a_way_out(
    db: Database, state: StudyState, verb: Callable[..., StudyRecord]
) -> None:
    record = new_study(db)
    put_in(db, record, state)
    with pytest.raises(Conflict) as caught:
        verb(db, record.id, now=NOW)
    assert caught.value.remedy
    assert studies.get(db, record.id).state == state


def test_an_active_study_cannot_be_deleted(db: Database) -> None:
    record = new_study(db)
    put_in(db, record, S.RUNNING)
    with pytest.raises(Conflict):
        studies.delete(db, record.id)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["start", "pause", "resume", "stop"]), max_size=8), st.sampled_from(sorted(S)))
def test_no_sequence_of_requests_makes_a_move_outside_the_table(db: Database, verbs: list[str], state: str) -> None:
    record = new_study(db, name=f"n{studies.uuid.uuid4().hex}")
    put_in(db, record, StudyState(state))
    before = studies.get(db, record.id).state
    for verb in verbs:
        with contextlib.suppress(Conflict):
            getattr(studies, verb)(db, record.id, now=NOW)
        after = studies.get(db, record.id).state
        assert after == before or StudyState(after) in ALLOWED[StudyState(before)]
        before = after
