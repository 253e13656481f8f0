"""The tables, for both databases.

Decides columns, keys, checks and indices. `alembic/versions` must always lead to exactly this (a test compares them).
Times are `UtcTime`, documents `Json`; a default lives in `records`, so that every insert names every column.
A study keeps the name of its host as history and without a foreign key: hosts may be inline, and may be removed later.
"""

from __future__ import annotations

import sqlalchemy as sa

from storage.types import CleanText, Json, Real, UtcTime

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

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _one_of(column: str, values: tuple[str, ...]) -> sa.CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=column)


def _serial() -> sa.Column[int]:
    # SQLite counts rows only in an INTEGER key; PostgreSQL gets eight bytes.
    return sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True)


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, CleanText, nullable=null)


def _time(name: str, *, null: bool = False) -> sa.Column[object]:
    return sa.Column(name, UtcTime, nullable=null)


def _json(name: str, *, null: bool = False) -> sa.Column[object]:
    return sa.Column(name, Json, nullable=null)


def _of_study(name: str = "study_id", *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, sa.ForeignKey("studies.id", ondelete="CASCADE"), nullable=null)


def _of_trial(number: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["study_id", number], ["trials.study_id", "trials.number"], ondelete="CASCADE")


hosts = sa.Table(
    "hosts",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    _json("entry"),
    _time("created_at"),
    _text("host_key", null=True),
    _text("needs_attention"),
    _json("facts"),
    _json("home", null=True),
    sa.Column("version", sa.Integer, nullable=False),
)

windows = sa.Table(
    "windows",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    _text("start_cron"),
    _text("timezone"),
    _time("created_at"),
    _text("until", null=True),
    sa.Column("duration_min", sa.Integer),
    sa.Column("enabled", sa.Boolean(create_constraint=False), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.CheckConstraint("duration_min IS NULL OR duration_min > 0", name="duration_min"),
)

window_runs = sa.Table(
    "window_runs",
    metadata,
    sa.Column("window_id", sa.Text, sa.ForeignKey("windows.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("local_date", sa.Text, primary_key=True),
    _time("opened_at"),
    _time("closes_at"),
    sa.Column("status", sa.Text, nullable=False),
    _text("reason"),
    _json("studies"),
    _json("report", null=True),
    _one_of("status", WINDOW_RUN_STATES),
)

studies = sa.Table(
    "studies",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("engine", sa.Text, nullable=False),
    _json("spec"),
    _time("created_at"),
    _text("phase"),
    _text("state_reason"),
    _text("engine_version", null=True),
    _text("fingerprint"),
    _json("home", null=True),
    _json("hardware", null=True),
    _json("verdict", null=True),
    sa.Column("best_trial", sa.Integer),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("window_id", sa.Text, sa.ForeignKey("windows.id", ondelete="SET NULL")),
    _text("run_dir", null=True),
    _time("started_at", null=True),
    _time("finished_at", null=True),
    _time("updated_at", null=True),
    sa.Column("version", sa.Integer, nullable=False),
    _one_of("state", STUDY_STATES),
    sa.Index(None, "state", "priority"),
    sa.Index(None, "created_at", "id"),
    sa.Index(None, "host"),
    sa.Index(None, "window_id"),
)

trials = sa.Table(
    "trials",
    metadata,
    _of_study(),
    sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    _text("arm"),
    _json("params"),
    _time("created_at"),
    _json("effective"),
    _text("canonical_key"),
    _text("phase"),
    _text("launch_command"),
    _json("env_names"),
    _text("run_id", null=True),
    sa.Column("host", sa.Text, nullable=False),
    _text("engine_version", null=True),
    _text("driver_version", null=True),
    _json("timings"),
    sa.Column("output_tok_s", Real),
    sa.Column("accept_len", Real),
    sa.Column("accept_rate", Real),
    sa.Column("step_ms", Real),
    _json("metrics"),
    _json("failure", null=True),
    _json("output_check", null=True),
    _json("running_config", null=True),
    _json("warnings"),
    sa.Column("optuna_number", sa.Integer),
    sa.Column("told", sa.Boolean(create_constraint=False), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    _time("started_at", null=True),
    _time("finished_at", null=True),
    sa.PrimaryKeyConstraint("study_id", "number"),
    _one_of("state", TRIAL_STATES),
    _one_of("kind", TRIAL_KINDS),
    sa.CheckConstraint("number >= 0", name="number"),
    sa.CheckConstraint("attempt >= 1", name="attempt"),
    sa.CheckConstraint("output_tok_s IS NULL OR output_tok_s >= 0", name="output_tok_s"),
    sa.CheckConstraint("accept_rate IS NULL OR (accept_rate >= 0 AND accept_rate <= 1)", name="accept_rate"),
    sa.Index(None, "study_id", "state", "kind"),
    sa.Index(None, "study_id", "canonical_key"),
    sa.Index(None, "study_id", "output_tok_s"),
    sa.Index(None, "host", "kind", "started_at"),
    sa.Index(None, "run_id"),
)

measurements = sa.Table(
    "measurements",
    metadata,
    _serial(),
    sa.Column("study_id", sa.Text, nullable=False),
    sa.Column("trial_number", sa.Integer, nullable=False),
    _text("workload_fingerprint"),
    _text("path"),
    _json("tok_s"),
    _json("metrics"),
    _time("started_at"),
    sa.Column("bench_s", Real, nullable=False),
    sa.Column("ended_early", sa.Boolean(create_constraint=False), nullable=False),
    _text("early_reason"),
    _json("warnings"),
    _of_trial("trial_number"),
    sa.CheckConstraint("bench_s >= 0", name="bench_s"),
    sa.Index(None, "study_id", "trial_number"),
    sqlite_autoincrement=True,
)

request_batches = sa.Table(
    "request_batches",
    metadata,
    sa.Column(
        "measurement_id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        sa.ForeignKey("measurements.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("codec", sa.Text, nullable=False),
    sa.Column("requests", sa.Integer, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

logs = sa.Table(
    "logs",
    metadata,
    sa.Column("study_id", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
    sa.Column("codec", sa.Text, nullable=False),
    sa.Column("original_bytes", sa.BigInteger, nullable=False),
    sa.Column("cut_bytes", sa.BigInteger, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("study_id", "number"),
    _of_trial("number"),
)

series = sa.Table(
    "series",
    metadata,
    sa.Column("study_id", sa.Text, nullable=False),
    sa.Column("trial_number", sa.Integer, nullable=False, autoincrement=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    _time("started_at"),
    sa.Column("points", sa.Integer, nullable=False),
    sa.Column("codec", sa.Text, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("study_id", "trial_number", "source", "name"),
    _of_trial("trial_number"),
)

events = sa.Table(
    "events",
    metadata,
    _serial(),
    _of_study(null=True),
    sa.Column("kind", sa.Text, nullable=False),
    _json("data"),
    _time("at"),
    sa.Index(None, "study_id", "id"),
    sa.Index(None, "at"),
    sqlite_autoincrement=True,
)

verdicts = sa.Table(
    "verdicts",
    metadata,
    _serial(),
    _of_study(),
    _text("candidate_key"),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("ratio", Real),
    sa.Column("ci_low", Real),
    sa.Column("ci_high", Real),
    sa.Column("restarts", sa.Integer, nullable=False),
    _json("pairs"),
    _time("at"),
    _one_of("outcome", VERDICT_OUTCOMES),
    sa.Index(None, "study_id", "id"),
    sqlite_autoincrement=True,
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text),
    sa.Column("fence", sa.BigInteger, nullable=False),
    _time("until"),
    sa.Column("study_id", sa.Text, sa.ForeignKey("studies.id", ondelete="SET NULL")),
    sa.CheckConstraint("fence >= 1", name="fence"),
    sa.Index(None, "study_id"),
)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("prefix", sa.Text, nullable=False, unique=True),
    sa.Column("hash", sa.Text, nullable=False),
    _json("scopes"),
    _time("created_at"),
    _time("expires_at", null=True),
    _time("revoked_at", null=True),
    _time("last_used_at", null=True),
    # A revoked key leaves its name free for its successor.
    sa.Index(
        "uq_keys_name_active",
        "name",
        unique=True,
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    ),
)

idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("caller", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_hash", sa.Text, nullable=False),
    sa.Column("status", sa.Integer),
    _json("response", null=True),
    _time("created_at"),
    sa.Index(None, "created_at"),
)

webhooks = sa.Table(
    "webhooks",
    metadata,
    _serial(),
    _of_study(null=True),
    _text("target"),
    sa.Column("kind", sa.Text, nullable=False),
    _json("payload"),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    _time("created_at"),
    _time("next_at"),
    _time("sent_at", null=True),
    _text("last_error"),
    _one_of("state", WEBHOOK_STATES),
    sa.CheckConstraint("attempts >= 0", name="attempts"),
    sa.Index(None, "state", "next_at"),
    sa.Index(None, "study_id"),
    sqlite_autoincrement=True,
)
