"""One host's part in a study: on which hosts there is work to do, and how the endings of all parts end the study.

Decides nothing about the work itself. A study on one host is a study with one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from optimizer.studies import StudyState, move_in
from storage import shares, studies
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
    """Return the hosts on which a workable study has work: not ended there, or home is still to come back."""
    with db.read() as conn:
        parts = shares.for_study(conn, study.id)
    due = [p.host for p in parts if _is_due(p, study.state)]
    return due or [study.host]


def _is_due(part: ShareRecord, state: str) -> bool:
    if state == S.STOPPING:
        return part.taken and not part.ending
    if state == S.RUNNING:
        return not part.ending
    return part.ending != S.FINISHED


def elsewhere_taken(db: Database, study_id: str, host: str) -> bool:
    """Say whether home is still to come back on another host of the study."""
    with db.read() as conn:
        return any(p.taken and not p.ending for p in shares.for_study(conn, study_id) if p.host != host)


def end(db: Database, study_id: str, host: str, ending: Ending, now: datetime) -> None:
    """Write down how the work on one host ended; with the last one the study ends, by the gravest of all endings."""
    with db.write() as conn:
        study = studies.find(conn, study_id)
        if study is None or study.state not in WORKABLE:
            return
        shares.update(conn, study_id, host, ending=ending.state, reason=ending.reason)
        parts = shares.for_study(conn, study_id)
        if any(_is_due(p, S.STOPPING if study.state == S.STOPPING else S.RUNNING) for p in parts):
            return
        gravest = _gravest(parts)
        move_in(conn, study_id, set(WORKABLE), gravest.state, gravest.reason, now)


def _gravest(parts: Sequence[ShareRecord]) -> Ending:
    ended = [p for p in parts if p.ending]
    worst = min(ended, key=lambda p: (GRAVEST_FIRST.index(S(p.ending)), not p.reason))
    named = f"{worst.host}: {worst.reason}" if worst.reason and len(parts) > 1 else worst.reason
    return Ending(S(worst.ending), named)
