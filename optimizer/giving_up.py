"""A study over several hosts goes on without one that is lost for good: its owner removed the host, then resumes.

Decides what becomes of that host's part: it waits for nothing there and is judged by the hosts that are left. What was
measured on the lost host stays and helps the search; it is no longer asked to be convinced.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from optimizer.errors import Conflict
from storage import events, hosts, leases, shares, studies, trials
from storage.records import StudyRecord

OWNER = "given up"


def leave_out_removed(conn: Any, study: StudyRecord, now: datetime) -> None:
    """Take the parts of removed hosts out of a study, and let the others judge anew; a last one left stays.

    Raises:
        Conflict: a worker is still at work on such a host.
    """
    parts = shares.for_study(conn, study.id)
    left = [part for part in parts if hosts.find(conn, part.host) is not None]
    gone = [part.host for part in parts if part not in left]
    if not gone or not left:
        return
    for host in gone:
        _close_trials(conn, study.id, host, now)
        shares.remove(conn, study.id, host)
        text = f"host {host} was removed: the study goes on without it and is judged by the hosts that are left"
        events.append(conn, study.id, "warning", {"text": text}, now)
    for part in left:
        shares.update(conn, study.id, part.host, ending="", reason="")
    if study.host in gone:
        studies.update(conn, study.id, host=left[0].host, home=left[0].home)


def _close_trials(conn: Any, study_id: str, host: str, now: datetime) -> None:
    """Close what was under way on a lost host, under a new fence: a worker of then writes nothing more."""
    fence = leases.claim(conn, host, OWNER, ttl_s=0, now=now, study_id=study_id)
    if fence is None:
        raise Conflict(f"a worker is still at work on the removed host {host}", remedy="wait a minute, then resume")
    for trial in trials.live(conn, study_id):
        if trial.host == host:
            ended = {"state": "interrupted", "phase": "", "finished_at": now}
            trials.update(conn, study_id, trial.number, host=host, fence=fence, **ended)
            events.append(conn, study_id, "trial", {"number": trial.number, "state": "interrupted"}, now)
    leases.release(conn, host, OWNER, fence)
