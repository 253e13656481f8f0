"""The words that columns may hold, and the kinds of columns that tables are made of."""

from __future__ import annotations

import sqlalchemy as sa

from storage.types import CleanText, Json, UtcTime

STUDY_STATES = (
    "created",
    "queued",
    "running",
    "paused",
    "waiting_window",
    "stopping",
    "finished",
    "failed",
    "needs_attention",
)
TRIAL_STATES = ("proposed", "launching", "warming", "measuring", "complete", "pruned", "infeasible", "interrupted")
LIVE_TRIAL_STATES = ("proposed", "launching", "warming", "measuring")
TRIAL_KINDS = ("baseline", "explore", "confirm", "self_test")
VERDICT_OUTCOMES = ("win", "worse", "no_significant_win", "undecided")
WINDOW_RUN_STATES = ("open", "ran", "missed")
WEBHOOK_STATES = ("pending", "sent", "given_up")

IS_LIVE = sa.text("state IN ({})".format(", ".join(f"'{state}'" for state in LIVE_TRIAL_STATES)))
"""Trials that have not ended. Literal, because SQLite uses a partial index only where it can read the condition."""
IS_UNTOLD = sa.text("optuna_number IS NOT NULL AND NOT told")
"""Trials of the search whose outcome it may not know yet."""


def one_of(column: str, values: tuple[str, ...]) -> sa.CheckConstraint:
    """Return a check that a column holds one of these words."""
    listed = ", ".join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=column)


def serial() -> sa.Column[int]:
    """Return a key that the database counts."""
    # SQLite counts rows only in an INTEGER key; PostgreSQL gets eight bytes.
    return sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True)


def text(name: str, *, null: bool = False) -> sa.Column[str]:
    """Return a column of text."""
    return sa.Column(name, CleanText, nullable=null)


def time(name: str, *, null: bool = False) -> sa.Column[object]:
    """Return a column of aware times."""
    return sa.Column(name, UtcTime, nullable=null)


def json(name: str, *, null: bool = False) -> sa.Column[object]:
    """Return a column of JSON documents."""
    return sa.Column(name, Json, nullable=null)


def of_study(name: str = "study_id", *, null: bool = False) -> sa.Column[str]:
    """Return a column that names a study and goes with it."""
    return sa.Column(name, sa.Text, sa.ForeignKey("studies.id", ondelete="CASCADE"), nullable=null)


def of_trial(number: str) -> sa.ForeignKeyConstraint:
    """Return a reference to a trial, by `study_id` and the number in this column; the row goes with it."""
    return sa.ForeignKeyConstraint(["study_id", number], ["trials.study_id", "trials.number"], ondelete="CASCADE")
