"""What becomes of a study, asked whatever by its owner, while the server that it had stopped is not proved back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import optuna
import pytest

from optimizer import host_care, share, studies, worker
from optimizer import hosts as host_verbs
from optimizer.clock import SystemClock
from optimizer.dispatch.workable import workable
from optimizer.errors import Conflict, Stopped, Unreachable
from optimizer.search.optuna_storage import close_storage, open_storage
from optimizer.search.study import name_in_optuna
from optimizer.share import Ending
from optimizer.studies import StudyState as S
from storage import hosts, leases, shares, windows
from storage import studies as rows
from storage.engine import Database
from storage.records import StudyRecord, WindowRecord
from tests.unit.core.test_several import created, parts
from tests.unit.core.test_studies import change
from tests.unit.core.test_worker import NOW, QUICK, FakeRun, queued, queued_by_night

CLOCK = SystemClock()


def taken_in(db: Database, state: S) -> StudyRecord:
    """A study in a state, its home stopped by a worker that died."""
    study = queued(db)
    with db.write() as conn:
        rows.move(conn, study.id, from_states=[S.QUEUED], to=state, now=NOW)
        shares.update(conn, study.id, study.host, taken=True, ending=state if state == S.NEEDS_ATTENTION else "")
    return study


def patch_host(monkeypatch: pytest.MonkeyPatch, phases: Callable[[Any], None] = lambda run: None) -> list[str]:
    """Replace the host; returns the names of the hosts whose home was put back."""
    back: list[str] = []

    def finish(run: Any, *, finished: bool) -> str:
        back.append(run.host.name)
        return ""

    monkeypatch.setattr(worker, "open_run", lambda db, study, spec, keeper, clock: FakeRun(db, study, keeper))
    monkeypatch.setattr(worker.phases, "run_study", phases)
    monkeypatch.setattr(worker.home_server, "finish", finish)
    return back


def advance(db: Database, study: StudyRecord) -> StudyRecord:
    worker.advance(db, study.id, owner="t", settings=QUICK)
    return studies.get(db, study.id)


@pytest.mark.parametrize(
    ("state", "verb", "lands"),
    [
        (S.QUEUED, studies.pause, S.PAUSED),
        (S.WAITING_WINDOW, studies.pause, S.PAUSED),
        *[(state, studies.stop, S.FINISHED) for state in (S.QUEUED, S.WAITING_WINDOW, S.PAUSED, S.NEEDS_ATTENTION)],
    ],
)
def test_an_idle_study_that_is_ended_still_puts_home_back(
    db: Database, monkeypatch: pytest.MonkeyPatch, state: S, verb: Callable[..., StudyRecord], lands: S
) -> None:
    study = taken_in(db, state)
    assert verb(db, study.id, now=NOW).state == S.STOPPING
    with pytest.raises(Conflict):
        studies.delete(db, study.id)
    back = patch_host(monkeypatch)
    assert (advance(db, study).state, back) == (lands, [study.host])
    with db.read() as conn:
        assert shares.not_back(conn, study.id) == []


def test_a_stop_while_a_pause_is_carried_out_is_not_lost(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    study = queued(db)

    def pause_then_stop(run: Any) -> None:
        studies.pause(db, study.id, now=NOW)
        studies.stop(db, study.id, now=NOW)
        raise Stopped(studies.PAUSE_ASKED)

    patch_host(monkeypatch, pause_then_stop)
    assert advance(db, study).state == S.FINISHED


def test_a_pause_in_the_moment_in_which_the_window_closes_ends(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    study = queued(db)

    def pause_too_late(run: Any) -> None:
        studies.pause(db, study.id, now=NOW)
        raise Stopped("the window closes")

    patch_host(monkeypatch, pause_too_late)
    assert advance(db, study).state == S.PAUSED


def test_a_stop_is_obeyed_although_another_host_was_out_of_reach_before(db: Database) -> None:
    study = created(db)
    share.end(db, study.id, "right", Ending(S.PAUSED, "no route"), NOW)
    studies.stop(db, study.id, now=NOW)
    share.end(db, study.id, "left", Ending(S.FINISHED, "stopped by the user"), NOW)
    assert studies.get(db, study.id).state == S.FINISHED


def test_a_study_that_stops_and_has_touched_nothing_needs_no_host(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = queued(db)
    studies.move(db, study.id, {S.QUEUED}, S.RUNNING, "", NOW)
    studies.stop(db, study.id, now=NOW)
    with db.write() as conn:
        leases.claim(conn, study.host, "somebody", ttl_s=600, now=CLOCK.now())
    monkeypatch.setattr(worker, "open_run", lambda *_: pytest.fail("the host is somebody else's"))
    assert workable(db, CLOCK) == []
    assert studies.get(db, study.id).state == S.FINISHED


def test_while_a_worker_is_at_work_nobody_else_ends_its_study(db: Database) -> None:
    study = queued(db)
    studies.move(db, study.id, {S.QUEUED}, S.RUNNING, "", NOW)
    studies.stop(db, study.id, now=NOW)
    with db.write() as conn:
        leases.claim(conn, study.host, "at work", ttl_s=600, now=CLOCK.now(), study_id=study.id)
    assert not share.settle(db, study.id, CLOCK.now())
    assert studies.get(db, study.id).state == S.STOPPING


def test_a_host_that_is_out_of_reach_without_its_server_takes_no_other_study_until_it_is_restored(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = taken_in(db, S.RUNNING)

    def out_of_reach(*_: Any) -> None:
        raise Unreachable(study.host, "no route", remedy="look")

    monkeypatch.setattr(worker, "open_run", out_of_reach)
    reason = advance(db, study).state_reason
    assert f"ratchet host remove {study.host}" in reason
    other = queued(db, name="other")
    assert advance(db, other).state == S.NEEDS_ATTENTION
    monkeypatch.setattr(host_care.connect, "open_link", lambda *_, **__: FakeRun(db, study, None))  # type: ignore[arg-type]
    monkeypatch.setattr(host_care, "known_home", lambda *_: None)
    monkeypatch.setattr(host_care, "_put_back", lambda *_: "home serves again")
    host_care.restore(db, study.host, clock=CLOCK)
    with db.read() as conn:
        assert hosts.get(conn, study.host).needs_attention == ""
    assert studies.stop(db, study.id, now=NOW).state == S.FINISHED, "there is nothing left to put back"


def test_a_host_that_is_given_up_keeps_no_study_from_its_end(db: Database) -> None:
    study = taken_in(db, S.NEEDS_ATTENTION)
    host_verbs.remove(db, study.host, now=NOW)
    assert studies.stop(db, study.id, now=NOW).state == S.FINISHED


def test_a_mistake_while_home_is_put_back_is_told_and_not_repeated_for_ever(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = queued(db)
    patch_host(monkeypatch)

    def finish(run: Any, *, finished: bool) -> str:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(worker.home_server, "finish", finish)
    row = advance(db, study)
    assert row.state == S.NEEDS_ATTENTION and "unexpected ZeroDivisionError" in row.state_reason


def test_a_study_that_waits_for_its_night_keeps_no_other_from_its_host(db: Database) -> None:
    waiting = queued_by_night(db)
    studies.move(db, waiting.id, {S.QUEUED}, S.WAITING_WINDOW, "", NOW)
    change(db, waiting.id, priority=5, now=NOW)
    other = queued(db, name="other")
    assert [job.study_id for job in workable(db, CLOCK)] == [other.id]


def test_a_waiting_study_whose_window_is_gone_is_looked_at(db: Database) -> None:
    study = queued_by_night(db)
    studies.move(db, study.id, {S.QUEUED}, S.WAITING_WINDOW, "", NOW)
    with db.write() as conn:
        windows.delete(conn, "w")
    assert [job.study_id for job in workable(db, CLOCK)] == [study.id]


def test_a_study_given_another_window_in_the_night_does_not_wait_for_the_next(db: Database) -> None:
    study = queued_by_night(db)
    now = CLOCK.now()
    begun = now - timedelta(hours=1)
    with db.write() as conn:
        windows.put(conn, WindowRecord("o", "open", f"{begun.minute} {begun.hour} * * *", "UTC", NOW, duration_min=600))
    advance(db, study)
    assert studies.get(db, study.id).state == S.WAITING_WINDOW
    change(db, study.id, window="open", now=now)
    assert studies.get(db, study.id).state == S.QUEUED
    assert [job.study_id for job in workable(db, CLOCK)] == [study.id]


def test_a_study_over_several_hosts_goes_on_without_one_that_was_removed(db: Database) -> None:
    study = created(db)
    share.end(db, study.id, "left", Ending(S.FINISHED), NOW)
    share.end(db, study.id, "right", Ending(S.PAUSED, "no route"), NOW)
    host_verbs.remove(db, "left", now=NOW)
    again = studies.resume(db, study.id, now=NOW)
    assert (again.state, again.host) == (S.QUEUED, "right")
    assert parts(db, study) == {"right": ("", False)}
    assert share.due_hosts(db, again) == ["right"]


def test_a_deleted_study_leaves_nothing_in_optunas_database(db: Database) -> None:
    study, kept = queued(db), queued(db, name="kept")
    names = [name_in_optuna(s.name, s.id) for s in (study, kept)]
    storage = open_storage(db.optuna_url)
    for name in names:
        optuna.create_study(storage=storage, study_name=name)
    studies.stop(db, study.id, now=NOW)
    studies.delete(db, study.id)
    assert optuna.get_all_study_names(storage) == names[1:]
    close_storage(storage)
    studies.stop(db, kept.id, now=NOW)
    studies.delete(db, kept.id)
    with db.read() as conn:
        assert rows.list_studies(conn) == []
