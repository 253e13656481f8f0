"""Owning one host for one study: the lease in the database, kept alive by a thread that also watches for a stop.

Decides when work must end (`check`): the lease is lost, a pause or stop was asked, or the window closes. Whoever waits
for something long calls `check` or passes `cancelled` on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

import structlog

from optimizer import windowing
from optimizer.clock import Clock
from optimizer.errors import BadInput, LeaseLost, Stopped
from optimizer.studies import StudyState
from storage import leases, studies, windows
from storage.engine import Database
from storage.errors import StorageError
from storage.records import StudyRecord

log = structlog.get_logger(__name__)

WATCH_EVERY_S = 0.5
"""How often a pause or stop is looked for; far below the 15 s within which home must be back."""


class LeaseKeeper:
    """One claimed host. Use as a context manager; `fence` is the number that guards every write."""

    def __init__(
        self,
        db: Database,
        host: str,
        owner: str,
        study_id: str,
        fence: int,
        *,
        clock: Clock,
        ttl_s: float,
        renew_s: float,
        ends_at: datetime | None = None,
    ) -> None:
        self._db = db
        self._clock = clock
        self.host = host
        self.owner = owner
        self.fence = fence
        self.study_id = study_id
        self.ends_at = ends_at
        self.restore_reserve_s = 0.0
        """Seconds before the window's end at which work stops, so that home is back before the end."""
        self.window_s = self.time_left_s()
        """Seconds of window that were left when the host was claimed; None without a window."""
        self.on_renew: Callable[[], None] | None = None
        self._ttl_s = ttl_s
        self.renew_s = renew_s
        self._held_until = clock.monotonic() + ttl_s
        self._reason: str | None = None
        self._lost = False
        self._interrupt: str | None = None
        self._window: tuple[object, ...] | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{host}", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(timeout=30)
        try:
            with self._db.write() as conn:
                leases.release(conn, self.host, self.owner, self.fence)
        except StorageError as error:
            log.warning("lease.release_failed", host=self.host, error=str(error))

    def interrupt(self, reason: str) -> None:
        """Ask the work to end for a reason of this process (Ctrl-C, shutdown); home is still restored."""
        self._interrupt = reason

    @property
    def interrupted(self) -> str | None:
        """The reason given to `interrupt`, if any."""
        return self._interrupt

    def cancelled(self) -> bool:
        """Say whether work must end, without raising."""
        return self._lost or self._stop_reason() is not None

    def check(self) -> None:
        """Raise when work must end.

        Raises:
            LeaseLost: another worker owns the host, or the lease could not be renewed in time.
            Stopped: a pause or stop was asked, this process ends, or the window closes.
        """
        self.check_owned()
        reason = self._stop_reason()
        if reason is not None:
            raise Stopped(reason)

    def check_owned(self) -> None:
        """Raise LeaseLost when the host is not ours any more; a stop that was asked does not matter here."""
        if self._lost or self._clock.monotonic() > self._held_until:
            self._lost = True
            raise LeaseLost(f"the lease on {self.host} is lost", remedy="another worker goes on; nothing to do")

    def confirm(self) -> None:
        """Make sure in the database that the host is still ours. Raises LeaseLost when it is not."""
        try:
            self._renew()
        except StorageError as error:
            log.warning("lease.database_unavailable", host=self.host, error=str(error))
        self.check_owned()

    def time_left_s(self) -> float | None:
        """Seconds until work must stop: the window's end less the time to put home back; None without a window."""
        return None if self.ends_at is None else self._until_end_s() - self.restore_reserve_s

    def _until_end_s(self) -> float:
        assert self.ends_at is not None
        return (self.ends_at - self._clock.now()).total_seconds()

    def _stop_reason(self) -> str | None:
        if self._interrupt is not None:
            return self._interrupt
        left = self.time_left_s()
        if left is not None and left <= 0:
            return "the window closes"
        return self._reason

    def _keep(self) -> None:
        next_renewal = self._clock.monotonic() + self.renew_s
        while not self._done.wait(WATCH_EVERY_S):
            try:
                self._watch()
                if self._clock.monotonic() >= next_renewal:
                    self._renew()
                    if self.on_renew is not None and not self._lost:
                        self.on_renew()
                    next_renewal = self._clock.monotonic() + self.renew_s
            except StorageError as error:
                log.warning("lease.database_unavailable", host=self.host, error=str(error))

    def _watch(self) -> None:
        with self._db.read() as conn:
            record = studies.find(conn, self.study_id)
            window = windows.find(conn, record.window_id) if record and record.window_id else None
        if record is None or record.state == StudyState.STOPPING:
            self._reason = record.state_reason if record else "the study was deleted"
            return
        seen = (record.window_id, record.spec.get("window"), window and (window.version, window.enabled))
        if self._window not in (None, seen):
            self._follow_window(record)
        self._window = seen

    def _follow_window(self, record: StudyRecord) -> None:
        """Work until the end of the window that holds now: it was switched, given or taken away meanwhile."""
        now = self._clock.now()
        try:
            view = windowing.look(self._db, record, now)
        except BadInput:
            view = windowing.NEVER
        self.ends_at = view.work_until if view.open else now

    def _renew(self) -> None:
        with self._db.write() as conn:
            # Read with the lock in hand: after a wait for it, less of the lease would be left than we believe.
            now, then = self._clock.now(), self._clock.monotonic()
            kept = leases.renew(conn, self.host, self.owner, self.fence, ttl_s=self._ttl_s, now=now)
        if not kept:
            self._lost = True
            return
        self._held_until = then + self._ttl_s


def claim(
    db: Database,
    host: str,
    owner: str,
    study_id: str,
    *,
    clock: Clock,
    ttl_s: float,
    renew_s: float,
    ends_at: datetime | None = None,
) -> LeaseKeeper | None:
    """Claim a host for a study; None when somebody else holds it."""
    with db.write() as conn:
        fence = leases.claim(conn, host, owner, ttl_s=ttl_s, now=clock.now(), study_id=study_id)
    if fence is None:
        return None
    return LeaseKeeper(db, host, owner, study_id, fence, clock=clock, ttl_s=ttl_s, renew_s=renew_s, ends_at=ends_at)
