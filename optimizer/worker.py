"""Works on one study on one host, from the claim of the host to its release.

Decides in what state the work ends for every way it can end, home put back first. The broad `except` at the boundary
of a study's work lives here and nowhere else. Which study comes next on which host is `dispatch`.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import structlog

from optimizer import home_server, metrics, phases, share, windowing
from optimizer.clock import Clock, SystemClock
from optimizer.errors import LeaseLost, NeedsAttention, RatchetError, Stopped
from optimizer.lease import LeaseKeeper, claim
from optimizer.run import StudyRun, open_run
from optimizer.settings import Settings
from optimizer.share import WORKABLE, Ending, due_hosts
from optimizer.studies import BY_USER, STOP_ASKED, StudyState, load_spec, move, move_in
from optimizer.windowing import WindowView
from storage import hosts, shares, studies
from storage.engine import Database
from storage.errors import StaleFence, StorageError, fault_behind
from storage.records import StudyRecord

log = structlog.get_logger(__name__)
S = StudyState
END_PATIENCE_S = 120.0
"""How long the last state of a study is tried to be written while the database is away or full."""
NOT_BACK = "home could not be restored: "
NOT_BEGUN = {S.QUEUED, S.WAITING_WINDOW}
SHUT_DOWN = "the service was shut down; resume the study to go on"


def worker_name() -> str:
    """A name that no other worker has: host, process and a random part."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


def advance(
    db: Database,
    study_id: str,
    *,
    owner: str,
    settings: Settings,
    host: str | None = None,
    clock: Clock | None = None,
    on_lease: Callable[[LeaseKeeper], None] | None = None,
) -> Ending | None:
    """Work on one study on one of its hosts until it ends there; home is back when this returns.

    Safe to call twice or for a study that another worker has: the lease decides. Returns None when there was nothing
    to do here.
    """
    clock = clock or SystemClock()
    with db.read() as conn:
        study = studies.find(conn, study_id)
        if study is None or study.state not in WORKABLE:
            return None
        host = host or study.host
        parts = shares.for_study(conn, study_id)
    if study.state == S.STOPPING and not any(p.taken for p in parts if p.host == host):
        share.settle(db, study.id, clock.now())
        return None
    window, closed = _look(db, study, clock.now())
    if closed is not None and study.state in NOT_BEGUN and not any(p.taken for p in parts):
        move(db, study.id, NOT_BEGUN - {closed.state}, closed.state, closed.reason, clock.now())
        return closed
    keeper = claim(
        db, host, owner, study.id,
        clock=clock, ttl_s=settings.lease_ttl_s, renew_s=settings.lease_renew_s, ends_at=window.work_until,
    )  # fmt: skip
    if keeper is None:
        return None
    if on_lease is not None:
        on_lease(keeper)
    with keeper:
        begun = _begin(db, study.id, host, closed, clock.now())
        ending = _work(db, begun, keeper, clock, closed) if isinstance(begun, StudyRecord) else begun
        if ending is not None:
            _end(db, study.id, host, ending, clock.now())
    if ending is None:
        share.settle(db, study.id, clock.now())  # it stopped meanwhile, and the other hosts waited for this one
    return ending


def advance_everywhere(
    db: Database,
    study: StudyRecord,
    *,
    owner: str,
    settings: Settings,
    on_lease: Callable[[LeaseKeeper], None] | None = None,
) -> None:
    """Work on a study on all of its hosts side by side, in threads of this process, until it has ended on each."""
    with ThreadPoolExecutor(thread_name_prefix="study") as pool:
        for done in [
            pool.submit(advance, db, study.id, owner=owner, settings=settings, host=host, on_lease=on_lease)
            for host in due_hosts(db, study)
        ]:
            done.result()


def _look(db: Database, study: StudyRecord, now: datetime) -> tuple[WindowView, Ending | None]:
    """Look at the study's window; when it lets nothing work, say how the work ends for now."""
    try:
        window = windowing.look(db, study, now)
    except RatchetError as error:
        return windowing.NEVER, _failed(study, error)
    return window, None if window.open else Ending(S.WAITING_WINDOW, window.reason)


def _mark_of(conn: Any, name: str) -> Ending | None:
    """Refuse to work on a host whose state could not be proved, until a human has looked."""
    host = hosts.find(conn, name)
    if host is None or not host.needs_attention:
        return None
    remedy = f"look at the host; `ratchet host restore {host.name}`, or resuming this study, clears the mark"
    return Ending(S.NEEDS_ATTENTION, f"host {host.name} needs attention: {host.needs_attention} ({remedy})")


def _begin(db: Database, study_id: str, host: str, closed: Ending | None, now: datetime) -> StudyRecord | Ending | None:
    """Move the study to running now that the host is ours, and return it; or how the work ends before it has begun.

    None: another worker has ended it meanwhile, or there is nothing to do here any more.
    """
    with db.write() as conn:
        study, part = studies.find(conn, study_id), shares.get(conn, study_id, host)
        if study is None or study.state not in WORKABLE or (study.state == S.RUNNING and part.ending):
            return None
        if study.state == S.STOPPING:
            return study if part.taken else None
        before = _mark_of(conn, host) or (None if part.taken else closed)
        if before is not None:
            return before
        if move_in(conn, study_id, {S.WAITING_WINDOW}, S.RUNNING, "", now):
            shares.begin_again(conn, study_id)
        move_in(conn, study_id, {S.QUEUED}, S.RUNNING, "", now)
        if study.started_at is None:
            studies.update(conn, study_id, started_at=now)
        return studies.get(conn, study_id)


def _work(db: Database, study: StudyRecord, keeper: LeaseKeeper, clock: Clock, closed: Ending | None) -> Ending | None:
    """Open the study, run its phases, put home back, and say how it ended. None: the host is not ours any more.

    `closed` is how it ends when no window lets it work: then there is only home to put back.
    """
    try:
        spec = load_spec(study)
        run = open_run(db, study, spec, keeper, clock)
    except LeaseLost:
        return None
    except RatchetError as error:
        return _out_of_reach(db, study, keeper.host, _failed(study, error))
    except Exception as error:  # noqa: BLE001 - the boundary: nothing on the host was touched by us
        return _out_of_reach(db, study, keeper.host, _unexpected(study, error))
    try:
        ending = closed if closed and run.study.state != S.STOPPING else _run_phases(run)
        return _restore(run, ending)
    except (LeaseLost, StaleFence):
        log.warning("worker.lease_lost", study=study.name, host=keeper.host)
        return None
    finally:
        run.close()


def _out_of_reach(db: Database, study: StudyRecord, host: str, ending: Ending) -> Ending:
    """The host could not be worked on: as said, unless a worker that died there had stopped home."""
    with db.write() as conn:
        if not shares.get(conn, study.id, host).taken:
            return ending
        reason = f"home may not be back: {ending.reason}"
        if hosts.find(conn, host) is not None:
            hosts.update(conn, host, needs_attention=reason)
    back = f"resume or stop the study, or `ratchet host restore {host}`"
    remedy = f"when it can be reached: {back}; when it is lost for good: `ratchet host remove {host}`"
    return Ending(S.NEEDS_ATTENTION, f"{reason} ({remedy})")


def _run_phases(run: StudyRun) -> Ending:
    try:
        if run.study.state != S.STOPPING:
            phases.run_study(run)
            return Ending(S.FINISHED)
        return _after_stop(run, Stopped(run.study.state_reason))
    except Stopped as stopped:
        return _after_stop(run, stopped)
    except (LeaseLost, StaleFence):
        raise
    except NeedsAttention as error:
        return _attention(run, error)
    except RatchetError as error:
        return _failed(run.study, error)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever breaks, home must be put back
        return _unexpected(run.study, error)


def _unexpected(study: StudyRecord, error: Exception) -> Ending:
    fault = fault_behind(error)  # ours or Optuna's: both are in one place
    if fault is not None:
        return Ending(S.PAUSED, f"the database failed: {fault} ({fault.remedy or 'resume when it works again'})")
    log.exception("worker.unexpected", study=study.name)
    return Ending(S.FAILED, f"unexpected {type(error).__name__}: {error}; this is a fault of Ratchet")


def _after_stop(run: StudyRun, stopped: Stopped) -> Ending:
    if stopped.reason in BY_USER:
        return Ending(S.FINISHED if stopped.reason == STOP_ASKED else S.PAUSED, BY_USER[stopped.reason])
    if run.lease.interrupted is not None:
        return Ending(S.PAUSED, stopped.reason)
    return Ending(S.WAITING_WINDOW, stopped.reason)


def _attention(run: StudyRun, error: RatchetError, before: str = "") -> Ending:
    """Mark the host: nothing is started there until a human has looked."""
    with run.db.write() as conn:
        hosts.update(conn, run.host.name, needs_attention=error.message)
    return Ending(S.NEEDS_ATTENTION, f"{before}{_why(error)}")


def _failed(study: StudyRecord, error: RatchetError) -> Ending:
    """What may work another time pauses the study; anything else fails it."""
    if error.retry:
        log.warning("worker.study_paused", study=study.name, error=error.message)
        return Ending(S.PAUSED, _why(error))
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
        why_not = home_server.finish(run, finished=ending.state is S.FINISHED and not ending.reason)
    except (LeaseLost, StorageError):
        raise
    except RatchetError as error:
        return _attention(run, error, NOT_BACK)
    except Exception as error:  # the boundary as well: a home that is not back is never left unsaid
        log.exception("worker.unexpected", study=run.study.name)
        return _attention(run, NeedsAttention(run.host.name, f"unexpected {type(error).__name__}: {error}"), NOT_BACK)
    return Ending(ending.state, why_not) if why_not else ending


def _end(db: Database, study_id: str, host: str, ending: Ending, now: datetime) -> None:
    end = time.monotonic() + END_PATIENCE_S
    while True:
        try:
            share.end(db, study_id, host, ending, now)
            return
        except StorageError as error:
            if time.monotonic() >= end:
                raise
            log.warning("worker.database_unavailable", study=study_id, error=str(error))
            time.sleep(2.0)
