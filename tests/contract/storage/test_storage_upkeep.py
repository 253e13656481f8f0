"""Old evidence goes, results stay, space comes back; on both databases."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from storage import events, logs, measurements, series, studies, trials, upkeep, verdicts, webhooks
from storage.engine import Database
from storage.errors import Missing
from storage.upkeep import Retention
from tests.contract.storage import samples
from tests.contract.storage.filled import everything, fill
from tests.contract.storage.samples import HOST, NOW


def end_study(db: Database, state: str = "finished") -> None:
    with db.write() as conn:
        studies.move(conn, "s1", from_states=["created"], to=state, now=NOW)
        studies.update(conn, "s1", finished_at=NOW)


def test_evidence_of_a_study_that_failed_long_ago_goes_too(db: Database) -> None:
    with db.write() as conn:
        fill(conn)
        studies.move(conn, "s1", from_states=["created"], to="failed", now=NOW)
        studies.update(conn, "s1", finished_at=None)
    assert upkeep.prune(db, Retention(), NOW + timedelta(days=179))["logs"] == 0
    assert upkeep.prune(db, Retention(), NOW + timedelta(days=181))["logs"] == 3


def test_old_evidence_goes_and_results_stay(db: Database) -> None:
    with db.write() as conn:
        fill(conn)
        webhooks.sent(conn, 1, NOW)
    end_study(db)
    removed = upkeep.prune(db, Retention(), NOW + timedelta(days=181))
    assert removed == {
        "request_batches": 3,
        "logs": 3,
        "series": 3,
        "events": 4,
        "webhooks": 1,
        "idempotency": 1,
    }
    with db.read() as conn:
        assert len(trials.list_trials(conn, "s1")) == 3
        assert len(measurements.for_study(conn, "s1")) == 3
        assert len(verdicts.for_study(conn, "s1")) == 3
        assert measurements.requests_of(conn, "s1", 0) == []
        assert series.for_trial(conn, "s1", 0) == []
        with pytest.raises(Missing, match="no log"):
            logs.get(conn, "s1", 0)


@pytest.mark.parametrize(("state", "days"), [("paused", 400), ("finished", 179)])
def test_evidence_stays_while_its_study_goes_on_or_is_young(db: Database, state: str, days: int) -> None:
    with db.write() as conn:
        fill(conn)
    end_study(db, state)
    with db.read() as conn:
        before = everything(conn)
    keep = Retention(events_days=None, webhooks_days=30, idempotency_days=None)
    removed = upkeep.prune(db, keep, NOW + timedelta(days=days))
    assert set(removed.values()) == {0}, "a message that was never sent stays too"
    with db.read() as conn:
        assert everything(conn) == before


def test_pruning_goes_through_more_than_one_batch(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "BATCH", 4)
    with db.write() as conn:
        fence = samples.leased_study(conn)
        for number in range(11):
            samples.stored_trial(conn, fence)
            logs.put(conn, "s1", number, b"x", host=HOST, fence=fence)
            events.append(conn, "s1", "x", {}, NOW)
    end_study(db)
    removed = upkeep.prune(db, Retention(), NOW + timedelta(days=999))
    assert (removed["logs"], removed["events"]) == (11, 11)


def test_vacuum_gives_space_back(db: Database) -> None:
    with db.write() as conn:
        fill(conn)
        for number in range(3):
            # Noise, because a log that compresses well leaves nothing to give back.
            logs.put(conn, "s1", number, bytes((i * i * 7919 + number) % 251 ^ (i >> 3) % 256 for i in range(400_000)))
    end_study(db)
    if not db.is_sqlite:
        upkeep.vacuum(db)
    used = upkeep.space(db)
    assert used.total_bytes > 100_000
    upkeep.prune(db, Retention(), NOW + timedelta(days=999))
    before, after = upkeep.vacuum(db)
    assert after < before
    with db.read() as conn:
        assert len(trials.list_trials(conn, "s1")) == 3
        # The connection of the vacuum did not come back in autocommit mode.
        assert conn.execute(sa.text("SELECT count(*) FROM logs")).scalar_one() == 0
    assert upkeep.damage(db) == []


def test_references_to_nothing_are_found(sqlite_db: Database) -> None:
    with sqlite_db.write() as conn:
        fill(conn)
    raw = sqlite_db.engine.raw_connection()
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute("DELETE FROM trials WHERE number = 1")
    raw.invalidate()
    assert "measurements refers to a row of trials" in " ".join(upkeep.damage(sqlite_db))
