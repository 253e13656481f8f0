"""A study in the foreground: whatever happens to the terminal, the host gets its server back before the end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api.cli import foreground
from api.cli.database import settings_for
from api.cli.foreground import Foreground
from api.cli.live import View
from api.cli.run import find_or_create
from optimizer import studies
from optimizer.errors import BadInput
from optimizer.settings import Settings
from optimizer.studies import StudyState, load_spec
from storage import events
from storage.engine import Database
from storage.records import StudyRecord
from tests.unit.core.test_studies import NOW, new_study


class Keeper:
    """A lease that notices when the work is interrupted."""

    def __init__(self) -> None:
        self.interrupted = threading.Event()
        self.reasons: list[str] = []

    def interrupt(self, reason: str) -> None:
        self.reasons.append(reason)
        self.interrupted.set()


@pytest.fixture
def hangup() -> Iterator[None]:
    """Do about a lost terminal what is usual, also under `nohup`; put back afterwards what was done before."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def work_in_foreground(db: Database, monkeypatch: pytest.MonkeyPatch, during: Callable[[Keeper], None]) -> StudyRecord:
    """Run a study whose work is `during`; it ends paused."""
    study = new_study(db)
    studies.start(db, study.id, now=NOW)

    def advance(db: Database, study: StudyRecord, *, on_lease: Callable[[Any], None], **_: Any) -> None:
        keeper = Keeper()
        on_lease(keeper)
        during(keeper)
        studies.move(db, study.id, {StudyState.QUEUED}, StudyState.PAUSED, "; ".join(keeper.reasons[:1]), NOW)

    monkeypatch.setattr(foreground, "advance_everywhere", advance)
    return Foreground(db, study, Settings()).run(View(db, study.id, 10), plain=True)


@pytest.mark.usefixtures("hangup")
def test_a_terminal_that_went_away_leaves_no_host_without_its_server(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_listens(_text: str) -> None:
        raise OSError(5, "Input/output error")

    def lose_the_terminal(keeper: Keeper) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
        assert keeper.interrupted.wait(10)

    monkeypatch.setattr(foreground, "say", nobody_listens)
    ended = work_in_foreground(db, monkeypatch, lose_the_terminal)
    assert (ended.state, ended.state_reason) == ("paused", foreground.INTERRUPTED)


@pytest.mark.usefixtures("hangup")
def test_with_nohup_a_lost_terminal_interrupts_nothing(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ended = work_in_foreground(db, monkeypatch, lambda keeper: os.kill(os.getpid(), signal.SIGHUP))
    assert (ended.state, ended.state_reason) == ("paused", "")


def test_a_view_that_breaks_waits_until_home_is_back_and_tells_why(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("cannot draw")

    reasons: list[str] = []

    def work(keeper: Keeper) -> None:
        assert keeper.interrupted.wait(10)
        reasons.extend(keeper.reasons)

    monkeypatch.setattr(foreground, "follow", broken)
    with pytest.raises(ValueError, match="cannot draw"):
        work_in_foreground(db, monkeypatch, work)
    assert reasons == ["the view broke; run the same command again to go on"]


def test_all_that_happened_is_told_at_the_end(db: Database) -> None:
    study = new_study(db)
    with db.write() as conn:
        for number in range(1200):
            events.append(conn, study.id, "note", {"text": f"note {number}"}, NOW)
    assert View(db, study.id, 10).refresh()[-1] == "note: note 1199"


def test_going_on_with_a_changed_budget_says_that_it_is_not_used(
    db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    study = new_study(db)
    spec = load_spec(study)
    assert find_or_create(db, spec).id == study.id
    assert "note" not in capsys.readouterr().err
    find_or_create(db, spec.model_copy(update={"budget": spec.budget.model_copy(update={"trials": 77})}))
    assert "what budget says now needs a study of another name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [("RATCHET_LEASE_RENEW_S", "45"), ("RATCHET_WORKER_POLL_S", "0"), ("RATCHET_KEEP_LOGS_DAYS", "never")],
)
def test_a_variable_that_cannot_be_used_is_bad_input(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadInput) as caught:
        settings_for(None)
    assert [p.path for p in caught.value.problems] == [name]
