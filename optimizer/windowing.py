"""Whether a study may work now: its window (if it has one) looked up in the database, judged by `windows.py`.

Decides nothing about time itself; it only joins a study with its window and says until when there is work.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from optimizer import windows
from optimizer.errors import BadInput
from storage import windows as stored
from storage.engine import Database
from storage.errors import Missing
from storage.records import StudyRecord, WindowRecord


@dataclass(frozen=True)
class WindowView:
    """Whether work may go on, until when, and why not."""

    open: bool
    work_until: datetime | None = None
    """When the window closes; None without a window."""
    reason: str = ""


ALWAYS = WindowView(open=True)
NEVER = WindowView(open=False)


def window_of(db: Database, study: StudyRecord) -> WindowRecord | None:
    """Return the window that a study is attached to, by its row or by name in its specification.

    Raises:
        BadInput: it names a window that does not exist (any more).
    """
    named = study.window_id or study.spec.get("window")
    if not named:
        return None
    try:
        with db.read() as conn:
            return stored.get(conn, str(named))
    except Missing as error:
        raise BadInput(f"study {study.name} names window {named!r}, which does not exist", remedy="add it") from error


def look(db: Database, study: StudyRecord, now: datetime) -> WindowView:
    """Say whether a study may work now, and until when."""
    window = window_of(db, study)
    if window is None:
        return ALWAYS
    if not window.enabled:
        return WindowView(open=False, reason=f"window {window.name} is switched off")
    opening = windows.current(window, now)
    if opening is not None and not _done_for_now(study, opening.opens_at):
        return WindowView(open=True, work_until=opening.closes_at)
    upcoming = windows.next_open(window, now)
    opens = f"opens {upcoming.opens_at:%Y-%m-%d %H:%M} UTC" if upcoming else "never opens again"
    return WindowView(open=False, reason=f"window {window.name} {opens}")


def _done_for_now(study: StudyRecord, opens_at: datetime) -> bool:
    """Say whether a study has worked in this opening and went back to waiting: what is left is too short for it."""
    waits = study.state == "waiting_window" and study.updated_at is not None
    return waits and study.updated_at is not None and study.updated_at >= opens_at
