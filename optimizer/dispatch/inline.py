"""One machine: a background thread that looks for work and advances studies, hosts side by side.

Decides which study each host works on next; what the work is, and who may touch the host, is `worker.advance`.
"""

from __future__ import annotations

import threading

import structlog

from optimizer.clock import Clock
from optimizer.dispatch.advancing import AdvancingWorker
from optimizer.settings import Settings
from optimizer.share import WORKABLE, due_hosts
from optimizer.studies import StudyState as S
from storage import studies
from storage.engine import Database
from storage.errors import StorageError

log = structlog.get_logger(__name__)


class InlineWorker(AdvancingWorker):
    """A background thread that advances studies, one at a time for each host, hosts side by side."""

    def __init__(
        self, db: Database, *, name: str | None = None, clock: Clock | None = None, settings: Settings | None = None
    ) -> None:
        super().__init__(db, name=name, clock=clock, settings=settings)
        self._wake = threading.Event()
        self._busy: dict[str, threading.Thread] = {}
        self._thread = threading.Thread(target=self._loop, name="worker", daemon=True)

    def start(self) -> None:
        """Begin to look for work."""
        self._thread.start()

    def wake(self) -> None:
        """Look for work now."""
        self._wake.set()

    def stop(self, timeout_s: float = 120.0) -> bool:
        """Pause what runs, wait until home is back everywhere, and end. False when that took too long."""
        self._interrupt()
        self._wake.set()
        with self._lock:
            threads = list(self._busy.values())
        deadline = self._clock.monotonic() + timeout_s
        for thread in [*threads, self._thread]:
            if thread.is_alive():
                thread.join(max(0.1, deadline - self._clock.monotonic()))
        return not any(t.is_alive() for t in threads)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            try:
                self._look()
            except StorageError as error:
                log.warning("worker.database_unavailable", error=str(error))
            self._wake.wait(self._settings.worker_poll_s)
            self._wake.clear()

    def _look(self) -> None:
        with self._db.read() as conn:
            waiting = studies.list_studies(conn, limit=1000, state=WORKABLE)
        waiting.sort(key=lambda s: (s.state != S.STOPPING, s.state != S.RUNNING, -s.priority, s.created_at))
        with self._lock:
            self._busy = {h: t for h, t in self._busy.items() if t.is_alive()}
            for study, host in [(s, h) for s in waiting for h in due_hosts(self._db, s)]:
                if host not in self._busy and not self._stopping.is_set():
                    thread = threading.Thread(target=self._advance, args=(study.id, host), name=f"study-{study.name}")
                    self._busy[host] = thread
                    thread.start()
