"""Trials: one row per server start. Every write is guarded by the fence of the host's lease."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage import leases, tables
from storage.columns import IS_LIVE, IS_UNTOLD, LIVE_TRIAL_STATES, TRIAL_STATES
from storage.errors import Missing
from storage.records import TrialRecord
from storage.rows import checked_fields, columns_of, execute, select_records, values_of

T = tables.trials
FIXED = ("study_id", "number", "created_at", "host", "fence")


def add(conn: Connection, trial: TrialRecord, *, host: str, fence: int) -> int:
    """Store a new trial under the next number of its study and return that number; the record's own is ignored.

    Raises:
        StaleFence: the lease of `host` no longer carries `fence`.
        Missing: there is no such study.
    """
    leases.guard(conn, host, fence)
    number = next_number(conn, trial.study_id)
    row = {**values_of(trial), "number": number, "host": host, "fence": fence}
    execute(conn, sa.insert(T).values(row))
    return number


def update(conn: Connection, study_id: str, number: int, *, host: str, fence: int, **fields: Any) -> None:
    """Change fields of a trial; its row then carries this fence.

    Raises:
        StaleFence: the lease of `host` no longer carries `fence`.
        Missing: there is no such trial.
    """
    changes = checked_fields(TrialRecord, fields, fixed=FIXED)
    leases.guard(conn, host, fence)
    query = sa.update(T).where(T.c.study_id == study_id, T.c.number == number)
    if execute(conn, query.values(**changes, host=host, fence=fence)).rowcount == 0:
        raise Missing(f"study {study_id} has no trial {number}")


def get(conn: Connection, study_id: str, number: int) -> TrialRecord:
    """Return one trial.

    Raises:
        Missing: there is none.
    """
    query = sa.select(*columns_of(T, TrialRecord)).where(T.c.study_id == study_id, T.c.number == number)
    found = select_records(conn, TrialRecord, query)
    if not found:
        raise Missing(f"study {study_id} has no trial {number}")
    return found[0]


def list_trials(
    conn: Connection,
    study_id: str,
    *,
    limit: int | None = None,
    after: int | None = None,
    states: Iterable[str] | None = None,
    kinds: Iterable[str] | None = None,
    newest_first: bool = False,
) -> list[TrialRecord]:
    """Return trials by number; `after` is the last number of the page before. Without `limit`, all of them."""
    order = T.c.number.desc() if newest_first else T.c.number
    query = sa.select(*columns_of(T, TrialRecord)).where(T.c.study_id == study_id).order_by(order).limit(limit)
    if after is not None:
        query = query.where(T.c.number < after if newest_first else T.c.number > after)
    if states is not None:
        query = query.where(T.c.state.in_(list(states)))
    if kinds is not None:
        query = query.where(T.c.kind.in_(list(kinds)))
    return select_records(conn, TrialRecord, query)


def next_number(conn: Connection, study_id: str) -> int:
    """Return the number that the next trial of a study gets."""
    last = execute(conn, sa.select(sa.func.max(T.c.number)).where(T.c.study_id == study_id)).scalar_one()
    return 0 if last is None else int(last) + 1


def live(conn: Connection, study_id: str) -> list[TrialRecord]:
    """Return the trials that have not ended: at most one per host while all is well."""
    query = sa.select(*columns_of(T, TrialRecord)).where(T.c.study_id == study_id, IS_LIVE).order_by(T.c.number)
    return select_records(conn, TrialRecord, query)


def untold(conn: Connection, study_id: str) -> list[TrialRecord]:
    """Return the trials that ended, came from the search and were not yet told to it."""
    query = (
        sa.select(*columns_of(T, TrialRecord))
        .where(
            T.c.study_id == study_id,
            IS_UNTOLD,
            T.c.state.not_in(LIVE_TRIAL_STATES),
        )
        .order_by(T.c.number)
    )
    return select_records(conn, TrialRecord, query)


def with_key(conn: Connection, study_id: str, canonical_key: str) -> list[TrialRecord]:
    """Return the trials that ran one effective configuration."""
    query = (
        sa.select(*columns_of(T, TrialRecord))
        .where(T.c.study_id == study_id, T.c.canonical_key == canonical_key)
        .order_by(T.c.number)
    )
    return select_records(conn, TrialRecord, query)


def best(conn: Connection, study_id: str, *, limit: int = 1, kinds: Sequence[str] = ("explore",)) -> list[TrialRecord]:
    """Return the complete trials with the highest output speed, best first; the verdict is another matter."""
    query = (
        sa.select(*columns_of(T, TrialRecord))
        .where(
            T.c.study_id == study_id,
            T.c.state == "complete",
            T.c.kind.in_(kinds),
            T.c.output_tok_s.is_not(None),
        )
        .order_by(T.c.output_tok_s.desc(), T.c.number)
        .limit(limit)
    )
    return select_records(conn, TrialRecord, query)


def count_by_state(conn: Connection, study_id: str) -> dict[str, int]:
    """Return how many trials a study has in each state; states without any are missing."""
    # Most are complete. Numbers have no gaps, so that these need not be counted one by one.
    others = [state for state in TRIAL_STATES if state != "complete"]
    query = sa.select(T.c.state, sa.func.count().label("trials")).where(T.c.study_id == study_id)
    found = {
        row.state: int(row.trials) for row in execute(conn, query.where(T.c.state.in_(others)).group_by(T.c.state))
    }
    complete = next_number(conn, study_id) - sum(found.values())
    return {**found, "complete": complete} if complete else found
