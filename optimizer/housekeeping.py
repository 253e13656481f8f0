"""Removes what has outlived its time, once a day, beside the service and beside every worker.

Decides when; what goes and what stays is `storage.upkeep`. Several processes may do it at once: there is less to do.
"""

from __future__ import annotations

from datetime import datetime

import structlog

from optimizer.clock import Clock, SystemClock
from optimizer.rounds import Rounds
from optimizer.settings import Settings
from storage import upkeep
from storage.engine import Database

log = structlog.get_logger(__name__)

FIRST_AFTER_S = 60.0
"""A service that has just started has better things to do."""
EVERY_S = 86_400.0


def housekeeper(
    db: Database, settings: Settings, *, clock: Clock | None = None, first_after_s: float = FIRST_AFTER_S
) -> Rounds:
    """Return the thread that does it; it is not started yet."""
    now = (clock or SystemClock()).now
    return Rounds("housekeeper", lambda: clean(db, settings, now()), every_s=EVERY_S, first_after_s=first_after_s)


def clean(db: Database, settings: Settings, now: datetime) -> None:
    """Remove what is too old by the settings. Raises StorageError."""
    removed = upkeep.prune(db, settings.retention, now)
    if any(removed.values()):
        log.info("housekeeping.removed", **removed)
