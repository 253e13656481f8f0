"""Removes what has outlived its time, once a day, beside the service and beside every worker.

Decides when; what goes and what stays is `storage.upkeep`. Several processes may do it at once: there is less to do.
"""

from __future__ import annotations

import threading

import structlog

from optimizer.clock import Clock, SystemClock
from optimizer.settings import Settings
from storage import upkeep
from storage.engine import Database
from storage.errors import StorageError

log = structlog.get_logger(__name__)

FIRST_AFTER_S = 60.0
"""A service that has just started has better things to do."""
EVERY_S = 86_400.0


class Housekeeper:
    """The thread. It can be stopped and started at any time: nothing is remembered between two rounds."""

    def __init__(
        self, db: Database, settings: Settings, *, clock: Clock | None = None, first_after_s: float = FIRST_AFTER_S
    ) -> None:
        self._db = db
        self._settings = settings
        self._clock = clock or SystemClock()
        self._first_after_s = first_after_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="housekeeper", daemon=True)

    def start(self) -> None:
        """Begin; the first round comes a little later."""
        self._thread.start()

    def stop(self) -> None:
        """End. A long round is not waited for: it may be cut off at any point."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _loop(self) -> None:
        wait_s = self._first_after_s
        while not self._done.wait(wait_s):
            self._clean()
            wait_s = EVERY_S

    def _clean(self) -> None:
        try:
            removed = upkeep.prune(self._db, self._settings.retention, self._clock.now())
        except StorageError as error:
            log.warning("housekeeping.failed", error=str(error))
            return
        if any(removed.values()):
            log.info("housekeeping.removed", **removed)
