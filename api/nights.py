"""Keeps the book of nights: opens and closes window runs, notes missed ones with the reason, makes the reports.

A thread that looks every few seconds and can be stopped and started at any time: everything is found again in the
database, and a report is stored before it is sent, so that it is made once. Whether a study may work is not decided
here (`optimizer.windowing`).
"""

from __future__ import annotations

import traceback
from datetime import datetime, timedelta

import structlog

from api import deliver, morning
from api.settings import ApiSettings
from optimizer import windows as rules
from optimizer.clock import Clock
from optimizer.rounds import Rounds
from storage import trials, windows
from storage.engine import Database
from storage.errors import StorageError
from storage.records import StudyRecord, WindowRecord, WindowRunRecord

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 15.0
REMEMBERED = timedelta(days=14)
"""How far back missed openings are noted after the service was away."""
SETTLING = timedelta(minutes=5)
"""After the end: a restore that took longer than planned still belongs to the night."""
AT_WORK = frozenset({"running", "stopping"})
RUNS_LOOKED_AT = 30
AWAY = "the service was not running"
SWITCHED_OFF = "the window was switched off"


def night_watch(db: Database, settings: ApiSettings, *, clock: Clock) -> Rounds:
    """Return the thread that looks; it is not started yet. What it did not write down is found at the next start."""
    return Rounds("nights", lambda: look(db, settings, clock.now()), every_s=LOOK_EVERY_S)


def look(db: Database, settings: ApiSettings, now: datetime) -> None:
    """Bring the book up to date, and send what is due."""
    with db.read() as conn:
        found = windows.list_windows(conn)
    for window in found:
        try:
            note_missed(db, window, now)
            note_open(db, window, now)
            close_ended(db, settings, window, now)
        except StorageError:
            raise
        except Exception:  # noqa: BLE001 - see below
            # A window that cannot be told must not keep the others, nor the outbox, from being looked after.
            log.error("night.not_written", window=window.name, traceback=traceback.format_exc())
    deliver.send_due(db, settings, now)


def note_open(db: Database, window: WindowRecord, now: datetime) -> None:
    """Write down that a window is open, once for each local date."""
    opening = rules.current(window, now) if window.enabled else None
    if opening is not None:
        _note(db, window, [opening], "open", "")


def note_missed(db: Database, window: WindowRecord, now: datetime) -> None:
    """Write down every opening that came and went without a run, and why.

    Also those of a window that is switched off, as such: switched on again, it would seem to have missed them.
    """
    since = max(window.created_at, now - REMEMBERED)
    over = [opening for opening in rules.between(window, since, now) if opening.closes_at <= now]
    for noted in _note(db, window, over, "missed", AWAY if window.enabled else SWITCHED_OFF):
        log.info("window.missed", window=window.name, local_date=noted.local_date, reason=noted.reason)


def _note(
    db: Database, window: WindowRecord, openings: list[rules.Opening], status: str, reason: str
) -> list[WindowRunRecord]:
    """Write down the openings that have no run yet, and return these; mostly there is none, and no writer waits."""
    with db.read() as conn:
        missing = [o for o in openings if windows.get_run(conn, window.id, o.local_date) is None]
    if not missing:
        return []
    runs = [WindowRunRecord(window.id, o.local_date, o.opens_at, o.closes_at, status, reason) for o in missing]
    with db.write() as conn:
        return [run for run in runs if windows.open_run(conn, run)]


def close_ended(db: Database, settings: ApiSettings, window: WindowRecord, now: datetime) -> None:
    """Close runs whose time is over: decide ran or missed, store the report, and queue it for sending."""
    with db.read() as conn:
        runs = windows.list_runs(conn, window.id, limit=RUNS_LOOKED_AT)
    for run in runs:
        if run.report is not None or run.closes_at > now:
            continue
        if _still_restoring(db, window, run) and now < run.closes_at + SETTLING:
            continue
        _close(db, settings, window, run, now)


def _close(db: Database, settings: ApiSettings, window: WindowRecord, run: WindowRunRecord, now: datetime) -> None:
    attached = morning.studies_of(db, window, run)
    worked = [s for s in attached if _worked(db, s, run)]
    status, reason = run.status, run.reason
    if worked:
        # Also when this process was away: a worker elsewhere may have used the night.
        status, reason = "ran", ""
    elif status == "open":
        status, reason = "missed", why_nothing_ran(attached, run)
    with db.write() as conn:
        windows.update_run(
            conn, window.id, run.local_date, status=status, reason=reason, studies=[s.name for s in worked]
        )
        closed = windows.get_run(conn, window.id, run.local_date)
    if closed is None:
        return
    report = morning.build_report(db, window, closed, now=now)
    with db.write() as conn:
        windows.update_run(conn, window.id, run.local_date, report=report)
        if reason != SWITCHED_OFF:  # whoever switched it off waits for no report
            deliver.queue(conn, settings, report, now)


def why_nothing_ran(attached: list[StudyRecord], run: WindowRunRecord) -> str:
    """Say why an opening that was watched brought nothing."""
    waiting = [s for s in attached if s.state in {"waiting_window", "queued"}]
    if waiting:
        return f"no worker took {waiting[0].name}" + (
            f" ({waiting[0].state_reason})" if waiting[0].state_reason else ""
        )
    unfinished = [s for s in attached if s.state != "finished"]
    if not attached:
        return "no study waits for this window"
    if unfinished:
        return f"{unfinished[0].name} was {unfinished[0].state.replace('_', ' ')}"
    return "every study of this window is finished"


def _still_restoring(db: Database, window: WindowRecord, run: WindowRunRecord) -> bool:
    return any(s.state in AT_WORK for s in morning.studies_of(db, window, run))


def _worked(db: Database, study: StudyRecord, run: WindowRunRecord) -> bool:
    span = morning.Span(run.opened_at, run.closes_at)
    if morning.ended_before(study, span):
        return False
    with db.read() as conn:
        return any(span.covers(t) for t in trials.list_trials(conn, study.id))
