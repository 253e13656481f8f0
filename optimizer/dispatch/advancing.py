"""What every worker does alike, however it finds its work: advance a study on a host, and hand it back when told to.

Decides nothing about order; who may touch the host is `worker.advance` and its lease.
"""

from __future__ import annotations

import threading

import structlog

from optimizer import worker
from optimizer.clock import Clock, SystemClock
from optimizer.lease import LeaseKeeper
from optimizer.settings import Settings
from storage.engine import Database
from storage.errors import StorageError

log = structlog.get_logger(__name__)


class AdvancingWorker:
    """Base of the workers: what they are given, and the hosts that this process holds."""

    def __init__(
        self, db: Database, *, name: str | None = None, clock: Clock | None = None, settings: Settings | None = None
    ) -> None:
        self.name = name or worker.worker_name()
        self._db = db
        self._clock = clock or SystemClock()
        self._settings = settings or Settings()
        self._stopping = threading.Event()
        self._keepers: dict[str, LeaseKeeper] = {}
        self._lock = threading.Lock()

    def _advance(self, study_id: str, host: str) -> None:
        """Work on a study on one host; a stop that was asked for meanwhile reaches it with its lease."""

        def remember(keeper: LeaseKeeper) -> None:
            with self._lock:
                self._keepers[host] = keeper
            if self._stopping.is_set():
                keeper.interrupt(worker.SHUT_DOWN)

        try:
            worker.advance(
                self._db,
                study_id,
                owner=self.name,
                settings=self._settings,
                host=host,
                clock=self._clock,
                on_lease=remember,
            )
        except StorageError as error:
            log.warning("worker.database_unavailable", study=study_id, error=str(error))
        finally:
            with self._lock:
                self._keepers.pop(host, None)

    def _interrupt(self) -> None:
        """Take no more work, and tell what runs that the service is being shut down."""
        self._stopping.set()
        with self._lock:
            keepers = list(self._keepers.values())
        for keeper in keepers:
            keeper.interrupt(worker.SHUT_DOWN)
