"""Old evidence goes by itself, and by the settings."""

from __future__ import annotations

import math
import threading
from datetime import datetime
from typing import Any

import pytest

from optimizer import housekeeping
from optimizer.housekeeping import housekeeper
from optimizer.settings import Settings
from storage.errors import DatabaseBusy
from storage.upkeep import Retention


def test_the_settings_say_how_long_evidence_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().retention == Retention()
    monkeypatch.setenv("RATCHET_KEEP_LOGS_DAYS", "7")
    monkeypatch.setenv("RATCHET_KEEP_EVENTS_DAYS", "inf")
    assert Settings().retention == Retention(logs_days=7, events_days=math.inf)


def test_it_prunes_again_and_again_and_outlives_a_busy_database(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[Retention] = []
    enough = threading.Event()

    def prune(db: Any, retention: Retention, now: datetime) -> dict[str, int]:
        rounds.append(retention)
        if len(rounds) == 1:
            raise DatabaseBusy("somebody writes")
        enough.set()
        return {"logs": 1}

    monkeypatch.setattr(housekeeping.upkeep, "prune", prune)
    monkeypatch.setattr(housekeeping, "EVERY_S", 0.01)
    settings = Settings(keep_logs_days=3)
    keeper = housekeeper(None, settings, first_after_s=0.01)  # type: ignore[arg-type]
    keeper.start()
    assert enough.wait(30)
    keeper.stop()
    assert rounds[0] == settings.retention
    assert not [t for t in threading.enumerate() if t.name == "housekeeper"]
