"""Who runs studies: a background thread that claims hosts and advances what is queued, and the foreground `advance`.

Decides which study a host works on, and what state a study ends in for every way its work can end. The broad `except`
at the boundary lives here and nowhere else.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from datetime import datetime

import structlog

from optimizer import home_server, metrics, phases, windowing
from optimizer.clock import Clock, SystemClock
from optimizer.errors import LeaseLost, NeedsAttention, RatchetError, Stopped
from optimizer.lease import LeaseKeeper, claim
from optimizer.run import StudyRun, open_run
from optimizer.settings import Settings
from optimizer.studies import PAUSE_ASKED, STOP_ASKED, StudyState, load_spec, move
from storage import hosts, studies
from storage.engine import Database
from storage.errors import StorageError
from storage.records import StudyRecord

log = structlog.get_logger(__name__)
S = StudyState
END_PATIENCE_S = 120.0
"""How long the last state of a study is tried to be written while the database is away or full."""
SHUT_DOWN = "the service was shut down; resume the study to go on"
WORKABLE = (S.QUEUED, S.RUNNING, S.STOPPING, S.WAITING_WINDOW)


def worker_name() -> str:
    """A name that no other worker has: host, process and a random part."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


@dataclass(frozen=True)
class Ending:
    """The state a study goes to when its work ends, and why."""

    state: StudyState
    reason: str = ""


def advance(
    db: Database,
    study_id: str,
    *,
    owner: str,
    settings: Settings,
    clock: Clock | None = None,
    on_lease: object = None,
) -> Ending | None:
    """Work on one study until it finishes, pauses or fails; home is back when this returns.

    Safe to call twice or for a study that another worker has: the lease decides. Returns None when there was nothing
    to do here.
    """
    clock = clock or SystemClock()
    with db.read() as conn:
        study = studies.find(conn, study_id)
    if study is None or study.state not in WORKABLE:
        return None
    try:
        window = windowing.look(db, study, clock.now())
    except RatchetError as error:
        refused = _failed(db, study, error)
        _end(db, study.id, refused, clock.now())
        return refused
    if not window.open and study.state != S.STOPPING:
        move(db, study.id, {S.QUEUED, S.RUNNING}, S.WAITING_WINDOW, window.reason, clock.now())
        return None
    marked = _mark_of(db, study)
    if marked is not None:
        _end(db, study.id, marked, clock.now())
        return marked
    keeper = claim(
        db,
        study.host,
        owner,
        study.id,
        clock=clock,
        ttl_s=settings.lease_ttl_s,
        renew_s=settings.lease_renew_s,
        ends_at=window.work_until,
    )
    if keeper is None:
        return None
    if callable(on_lease):
        on_lease(keeper)
    with keeper:
        fresh = _begin(db, study.id, clock.now())
        if fresh is None:
            return None
        ending = _work(db, fresh, keeper, clock)
        if ending is not None:
            _end(db, study.id, ending, clock.now())
    return ending


def _mark_of(db: Database, study: StudyRecord) -> Ending | None:
    """Refuse to work on a host whose state could not be proved, until a human has looked."""
    with db.read() as conn:
        host = hosts.find(conn, study.host)
    if host is None or not host.needs_attention or study.state == S.STOPPING:
        return None
    remedy = f"look at the host; `ratchet host restore {host.name}`, or resuming this study, clears the mark"
    return Ending(S.NEEDS_ATTENTION, f"host {host.name} needs attention: {host.needs_attention} ({remedy})")


def _begin(db: Database, study_id: str, now: datetime) -> StudyRecord | None:
    """Move the study to running now that the host is ours; None when another worker has ended it meanwhile."""
    move(db, study_id, {S.QUEUED, S.WAITING_WINDOW}, S.RUNNING, "", now)
    with db.write() as conn:
        study = studies.find(conn, study_id)
        if study is None or study.state not in {S.RUNNING, S.STOPPING}:
            return None
        if study.started_at is None:
            study = studies.update(conn, study_id, started_at=now)
    return study


def _work(db: Database, study: StudyRecord, keeper: LeaseKeeper, clock: Clock) -> Ending | None:
    """Open the study, run its phases, put home back, and say how it ended. None: the host is not ours any more."""
    try:
        spec = load_spec(study)
        run = open_run(db, study, spec, keeper, clock)
    except LeaseLost:
        return None
    except RatchetError as error:
        return _failed(db, study, error)
    except Exception as error:  # noqa: BLE001 - the boundary: nothing on the host was touched yet
        return _unexpected(study, error)
    try:
        ending = _run_phases(run)
        return _restore(run, ending)
    except LeaseLost:
        log.warning("worker.lease_lost", study=study.name, host=study.host)
        return None
    finally:
        run.close()


def _run_phases(run: StudyRun) -> Ending:
    try:
        if run.study.state != S.STOPPING:
            phases.run_study(run)
        return Ending(S.FINISHED if run.study.state != S.STOPPING else _asked(run))
    except Stopped as stopped:
        return _after_stop(run, stopped)
    except LeaseLost:
        raise
    except NeedsAttention as error:
        return _attention(run, error)
    except RatchetError as error:
        return _failed(run.db, run.study, error)
    except StorageError as error:
        return Ending(S.PAUSED, f"the database failed: {error} ({error.remedy or 'resume when it works again'})")
    except Exception as error:  # noqa: BLE001 - the boundary: whatever breaks, home must be put back
        return _unexpected(run.study, error)


def _unexpected(study: StudyRecord, error: Exception) -> Ending:
    log.exception("worker.unexpected", study=study.name)
    return Ending(S.FAILED, f"unexpected {type(error).__name__}: {error}; this is a fault of Ratchet")


def _asked(run: StudyRun) -> StudyState:
    return S.PAUSED if run.study.state_reason == PAUSE_ASKED else S.FINISHED


def _after_stop(run: StudyRun, stopped: Stopped) -> Ending:
    if stopped.reason == STOP_ASKED:
        return Ending(S.FINISHED, "stopped by the user")
    if stopped.reason == PAUSE_ASKED:
        return Ending(S.PAUSED, "paused by the user")
    if run.lease.interrupted is not None:
        return Ending(S.PAUSED, stopped.reason)
    return Ending(S.WAITING_WINDOW, stopped.reason)


def _attention(run: StudyRun, error: NeedsAttention) -> Ending:
    with run.db.write() as conn:
        hosts.update(conn, run.host.name, needs_attention=error.message)
    return Ending(S.NEEDS_ATTENTION, _why(error))


def _failed(db: Database, study: StudyRecord, error: RatchetError) -> Ending:
    metrics.add("studies_failed_total")
    log.warning("worker.study_failed", study=study.name, error=error.message)
    detail = [f"{p.path}: {p.message}" + (f", {p.hint}" if p.hint else "") for p in getattr(error, "problems", ())]
    return Ending(S.FAILED, "; ".join([_why(error), *detail]))


def _why(error: RatchetError) -> str:
    return f"{error.message} ({error.remedy})" if error.remedy else error.message


def _restore(run: StudyRun, ending: Ending) -> Ending:
    """Put home back (or adopt the winner) and prove it; a failure here is what the owner must hear first."""
    if ending.state is S.NEEDS_ATTENTION:
        return ending
    try:
        home_server.finish(run, finished=ending.state is S.FINISHED and not ending.reason)
    except LeaseLost:
        raise
    except RatchetError as error:
        with run.db.write() as conn:
            hosts.update(conn, run.host.name, needs_attention=error.message)
        return Ending(S.NEEDS_ATTENTION, f"home could not be restored: {_why(error)}")
    return ending


def _end(db: Database, study_id: str, ending: Ending, now: datetime) -> None:
    states = {S.QUEUED, S.RUNNING, S.STOPPING, S.WAITING_WINDOW}
    end = time.monotonic() + END_PATIENCE_S
    while True:
        try:
            move(db, study_id, states, ending.state, ending.reason, now)
            return
        except StorageError as error:
            if time.monotonic() >= end:
                raise
            log.warning("worker.database_unavailable", study=study_id, error=str(error))
            time.sleep(2.0)


class Worker:
    """A background thread that advances studies, one at a time for each host, hosts side by side."""

    def __init__(
        self, db: Database, *, name: str | None = None, clock: Clock | None = None, settings: Settings | None = None
    ) -> None:
        self._db = db
        self.name = name or worker_name()
        self._clock = clock or SystemClock()
        self._settings = settings or Settings()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._busy: dict[str, threading.Thread] = {}
        self._keepers: dict[str, LeaseKeeper] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop, name="worker", daemon=True)

    def start(self) -> None:
        """Begin to look for work."""
        self._thread.start()

    def wake(self) -> None:
        """Look for work now."""
        self._wake.set()

    def stop(self, timeout_s: float = 120.0) -> bool:
        """Pause what runs, wait until home is back everywhere, and end. False when that took too long."""
        self._stopping.set()
        self._wake.set()
        with self._lock:
            keepers, threads = list(self._keepers.values()), list(self._busy.values())
        for keeper in keepers:
            keeper.interrupt(SHUT_DOWN)
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
            for study in waiting:
                if study.host not in self._busy and not self._stopping.is_set():
                    thread = threading.Thread(target=self._advance, args=(study,), name=f"study-{study.name}")
                    self._busy[study.host] = thread
                    thread.start()

    def _advance(self, study: StudyRecord) -> None:
        def remember(keeper: LeaseKeeper) -> None:
            with self._lock:
                self._keepers[study.host] = keeper
            if self._stopping.is_set():
                keeper.interrupt(SHUT_DOWN)

        try:
            advance(self._db, study.id, owner=self.name, settings=self._settings, clock=self._clock, on_lease=remember)
        except StorageError as error:
            log.warning("worker.database_unavailable", study=study.name, error=str(error))
        finally:
            self._keepers.pop(study.host, None)
