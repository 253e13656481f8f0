"""One host's part in a study: on which hosts there is work to do, and how the endings of all parts end the study.

Decides nothing about the work itself. A study on one host is a study with one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from optimizer.studies import BY_USER, PAUSE_ASKED, STOP_ASKED, StudyState, move_in
from storage import leases, shares, studies
from storage.engine import Database
from storage.records import ShareRecord, StudyRecord

S = StudyState
WORKABLE = (S.QUEUED, S.RUNNING, S.STOPPING, S.WAITING_WINDOW)
GRAVEST_FIRST = (S.NEEDS_ATTENTION, S.FAILED, S.PAUSED, S.WAITING_WINDOW, S.FINISHED)


@dataclass(frozen=True)
class Ending:
    """The state a study goes to when its work ends, and why."""

    state: StudyState
    reason: str = ""


def due_hosts(db: Database, study: StudyRecord) -> list[str]:
    """Return the hosts on which a workable study has work: not ended there, or home is still to come back.

    Never none: a study that has only to be moved on is looked at on its own host.
    """
    with db.read() as conn:
        parts = shares.for_study(conn, study.id)
    due = [p.host for p in parts if _is_due(p, study.state)]
    return due or [study.host]


def _is_due(part: ShareRecord, state: str) -> bool:
    if state == S.STOPPING:
        return part.taken and not part.ending
    if state == S.WAITING_WINDOW:
        return part.ending != S.FINISHED
    return not part.ending


def end(db: Database, study_id: str, host: str, ending: Ending, now: datetime) -> None:
    """Write down how the work on one host ended; with the last one the study ends.

    Then by the gravest of all endings, or as its owner asked. Where the host does not need attention, home is back.
    A study that stops ends after the last worker on it: one that has not touched its host yet must see the stop.
    """
    with db.write() as conn:
        study = studies.find(conn, study_id)
        if study is None or study.state not in WORKABLE:
            return
        back = {} if ending.state is S.NEEDS_ATTENTION else {"taken": False}
        shares.update(conn, study_id, host, ending=ending.state, reason=ending.reason, **back)
        _end_with_the_last(conn, study, now, by=host)


def settle(db: Database, study_id: str, now: datetime) -> bool:
    """End a study that its owner wants ended, if no worker is at work on it and no home is still to come back.

    Says whether it has ended.
    """
    with db.write() as conn:
        study = studies.find(conn, study_id)
        if study is None or study.state != S.STOPPING:
            return True
        return _end_with_the_last(conn, study, now)


def _end_with_the_last(conn: Any, study: StudyRecord, now: datetime, *, by: str | None = None) -> bool:
    parts = shares.for_study(conn, study.id)
    stopping = study.state == S.STOPPING
    if any(_is_due(p, S.STOPPING if stopping else S.RUNNING) for p in parts):
        return False
    at_work = [lease.host for lease in leases.list_leases(conn) if lease.study_id == study.id and lease.until > now]
    if stopping and set(at_work) - {by}:
        return False
    last = _as_asked(study, parts) if stopping else _gravest(parts)
    return move_in(conn, study.id, {S(study.state)}, last.state, last.reason, now)


def _gravest(parts: Sequence[ShareRecord]) -> Ending:
    worst = min(parts, key=lambda p: (GRAVEST_FIRST.index(S(p.ending)), not p.reason))
    named = f"{worst.host}: {worst.reason}" if worst.reason and len(parts) > 1 else worst.reason
    return Ending(S(worst.ending), named)


def _as_asked(study: StudyRecord, parts: Sequence[ShareRecord]) -> Ending:
    """Return how a study ends that was asked to, last: what a part met on its way there matters less than that word.

    Except for a home that is not back, and for a part that failed when only a pause was asked for.
    """
    ended = [p for p in parts if p.ending]
    worst = _gravest(ended) if ended else Ending(S.FINISHED)
    through = len(ended) == len(parts) and worst.state is S.FINISHED
    if worst.state is S.NEEDS_ATTENTION or through:
        return worst
    if study.state_reason == STOP_ASKED:
        return Ending(S.FINISHED, BY_USER[STOP_ASKED])
    return worst if worst.state in {S.FAILED, S.PAUSED} else Ending(S.PAUSED, BY_USER[PAUSE_ASKED])
