"""One machine: a background thread that looks for work and advances studies, hosts side by side.

Decides that each host has one thread; what is next is `workable`, and who may touch the host is `worker.advance`.
"""

from __future__ import annotations

import threading

from optimizer.clock import Clock
from optimizer.dispatch.advancing import AdvancingWorker
from optimizer.dispatch.workable import workable
from optimizer.rounds import Rounds
from optimizer.settings import Settings
from storage.engine import Database


class InlineWorker(AdvancingWorker):
    """A background thread that advances studies, one at a time for each host, hosts side by side."""

    def __init__(
        self, db: Database, *, name: str | None = None, clock: Clock | None = None, settings: Settings | None = None
    ) -> None:
        super().__init__(db, name=name, clock=clock, settings=settings)
        self._busy: dict[str, threading.Thread] = {}
        self._rounds = Rounds("worker", self._look, every_s=self._settings.worker_poll_s)

    def start(self) -> None:
        """Begin to look for work."""
        self._rounds.start()

    def alive(self) -> bool:
        """Say whether it looks for work."""
        return self._rounds.alive()

    def wake(self) -> None:
        """Look for work now."""
        self._rounds.wake()

    def stop(self, timeout_s: float = 120.0) -> bool:
        """Pause what runs, wait until home is back everywhere, and end. False when that took too long."""
        self._interrupt()
        self._rounds.stop()
        with self._lock:
            threads = list(self._busy.values())
        deadline = self._clock.monotonic() + timeout_s
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.1, deadline - self._clock.monotonic()))
        return not any(t.is_alive() for t in threads)

    def _look(self) -> None:
        jobs = workable(self._db, self._clock)
        with self._lock:
            self._busy = {h: t for h, t in self._busy.items() if t.is_alive()}
            for job in jobs:
                if job.host not in self._busy and not self._stopping.is_set():
                    thread = threading.Thread(
                        target=self._advance, args=(job.study_id, job.host), name=f"study-{job.study_id}"
                    )
                    self._busy[job.host] = thread
                    thread.start()
