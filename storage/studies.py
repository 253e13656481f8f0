"""Studies: their rows, and the one atomic move between states. Which moves make sense is decided above."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import shares, tables
from storage.errors import Duplicate, Missing
from storage.records import StudyRecord
from storage.rows import checked_fields, columns_of, execute, select_record, select_records, values_of

T = tables.studies
FIXED = ("id", "name", "state", "created_at", "version")


def create(conn: Connection, study: StudyRecord, *, hosts: Sequence[str] = ()) -> StudyRecord:
    """Store a new study and return it. `hosts` are all that it works on, its own first; without them that one alone.

    Raises:
        Duplicate: the id or the name is taken.
        Missing: its window does not exist.
    """
    taken = execute(conn, sa.select(T.c.id).where(sa.or_(T.c.name == study.name, T.c.id == study.id))).first()
    if taken is not None:
        raise Duplicate(f"a study named {study.name} exists already", remedy="choose another name, or resume that one")
    execute(conn, sa.insert(T).values(values_of(study)))
    shares.add(conn, study.id, hosts or [study.host])
    return study


def get(conn: Connection, id_or_name: str) -> StudyRecord:
    """Return a study by its id, or else by its name.

    Raises:
        Missing: there is none.
    """
    both = sa.select(*columns_of(T, StudyRecord)).where(sa.or_(T.c.id == id_or_name, T.c.name == id_or_name))
    found = select_records(conn, StudyRecord, both)
    if not found:
        raise Missing(f"there is no study {id_or_name}", remedy="`ratchet study list` shows what exists")
    return next((study for study in found if study.id == id_or_name), found[0])


def list_studies(
    conn: Connection,
    *,
    limit: int | None = 100,
    after: str | None = None,
    state: str | Iterable[str] | None = None,
    host: str | None = None,
    window_id: str | None = None,
) -> list[StudyRecord]:
    """Return studies, newest first; `after` is the id of the last one of the page before, `host` one that they work on.

    Raises:
        Missing: the study `after` is gone.
    """
    query = sa.select(*columns_of(T, StudyRecord)).order_by(T.c.created_at.desc(), T.c.id.desc()).limit(limit)
    if state is not None:
        query = query.where(T.c.state.in_([state] if isinstance(state, str) else list(state)))
    if host is not None:
        of_host = sa.select(tables.shares.c.study_id).where(tables.shares.c.host == host)
        query = query.where(T.c.id.in_(of_host))
    if window_id is not None:
        query = query.where(T.c.window_id == window_id)
    if after is not None:
        last = execute(conn, sa.select(T.c.created_at, T.c.id).where(T.c.id == after)).one_or_none()
        if last is None:
            raise Missing(f"there is no study {after} to go on after", remedy="list from the start")
        query = query.where(
            sa.or_(T.c.created_at < last.created_at, sa.and_(T.c.created_at == last.created_at, T.c.id < last.id))
        )
    return select_records(conn, StudyRecord, query)


def update(conn: Connection, study_id: str, *, version: int | None = None, **fields: Any) -> StudyRecord:
    """Change fields of a study and count its version; the state changes only by `move`.

    With `version`, only when the row still carries it.

    Raises:
        Missing: there is no such study, or it carries another version.
    """
    changes = checked_fields(StudyRecord, fields, fixed=FIXED)
    query = sa.update(T).where(T.c.id == study_id)
    if version is not None:
        query = query.where(T.c.version == version)
    changed = execute(conn, query.values(**changes, version=T.c.version + 1))
    if changed.rowcount == 0:
        which = study_id if version is None else f"{study_id} in version {version}"
        raise Missing(f"there is no study {which}")
    return get(conn, study_id)


def move(
    conn: Connection,
    study_id: str,
    *,
    from_states: Iterable[str],
    to: str,
    reason: str = "",
    now: datetime,
) -> bool:
    """Move a study to a state when it is in one of `from_states`, in one statement; say whether it moved."""
    changed = execute(
        conn,
        sa.update(T)
        .where(T.c.id == study_id, T.c.state.in_(list(from_states)))
        .values(state=to, state_reason=reason, updated_at=now, version=T.c.version + 1),
    )
    return changed.rowcount == 1


def delete(conn: Connection, study_id: str) -> None:
    """Remove a study and everything measured for it.

    Raises:
        Missing: there is none.
    """
    if execute(conn, sa.delete(T).where(T.c.id == study_id)).rowcount == 0:
        raise Missing(f"there is no study {study_id}")


def find(conn: Connection, study_id: str) -> StudyRecord | None:
    """Return a study by its id, or None."""
    return select_record(conn, StudyRecord, sa.select(*columns_of(T, StudyRecord)).where(T.c.id == study_id))
