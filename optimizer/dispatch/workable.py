"""What could be worked on now, and in which order: studies whose window is open, on hosts that nobody works on.

Decides for every dispatcher alike. Whether there is work in the end, and who may touch the host, is `worker.advance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from optimizer import share, windowing
from optimizer.clock import Clock
from optimizer.errors import RatchetError
from optimizer.studies import StudyState
from storage import leases, shares, studies
from storage.engine import Database
from storage.records import StudyRecord

URGENT = {StudyState.STOPPING: 2_000_000, StudyState.RUNNING: 1_000_000}
"""Far above any priority: first what is to end, then what was begun."""


@dataclass(frozen=True)
class Job:
    """One study that should be looked at on one of its hosts."""

    study_id: str
    host: str
    priority: int


def workable(db: Database, clock: Clock) -> list[Job]:
    """Return what could go on now, the most urgent first and of equals the oldest.

    Studies that have only to be moved to the end that their owner asked for are moved here: that needs no host.
    """
    now = clock.now()
    with db.read() as conn:
        found = studies.list_studies(conn, limit=None, state=share.WORKABLE)
        busy = {lease.host for lease in leases.list_leases(conn) if lease.until > now}
    jobs = [
        Job(study.id, host, study.priority + URGENT.get(StudyState(study.state), 0))
        for study in reversed(found)
        if _may_go_on(db, study, now)
        for host in share.due_hosts(db, study)
        if host not in busy
    ]
    return sorted(jobs, key=lambda job: -job.priority)


def _may_go_on(db: Database, study: StudyRecord, now: datetime) -> bool:
    if study.state == StudyState.STOPPING:
        return not share.settle(db, study.id, now)
    if study.state != StudyState.WAITING_WINDOW:
        return True
    try:
        if windowing.look(db, study, now).open:
            return True
    except RatchetError:
        return True  # its window is gone: the worker says so
    with db.read() as conn:
        return any(part.taken for part in shares.for_study(conn, study.id))
