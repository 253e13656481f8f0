"""The tables, for both databases.

Decides columns, keys, checks and indices. `alembic/versions` must always lead to exactly this (a test compares them).
Times are `UtcTime`, documents `Json`; a default lives in `records`, so that every insert names every column.
A study keeps the name of its host as history and without a foreign key: hosts may be inline, and may be removed later.
"""

from __future__ import annotations

import sqlalchemy as sa

from storage.columns import (
    IS_LIVE,
    IS_UNTOLD,
    STUDY_STATES,
    TRIAL_KINDS,
    TRIAL_STATES,
    VERDICT_OUTCOMES,
    WEBHOOK_STATES,
    WINDOW_RUN_STATES,
    json,
    of_study,
    of_trial,
    one_of,
    serial,
    text,
    time,
)
from storage.types import Real

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


hosts = sa.Table(
    "hosts",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    json("entry"),
    time("created_at"),
    text("host_key", null=True),
    text("needs_attention"),
    json("facts"),
    json("home", null=True),
    sa.Column("version", sa.Integer, nullable=False),
)

windows = sa.Table(
    "windows",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    text("start_cron"),
    text("timezone"),
    time("created_at"),
    text("until", null=True),
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
    time("opened_at"),
    time("closes_at"),
    sa.Column("status", sa.Text, nullable=False),
    text("reason"),
    json("studies"),
    json("report", null=True),
    one_of("status", WINDOW_RUN_STATES),
)

studies = sa.Table(
    "studies",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("engine", sa.Text, nullable=False),
    json("spec"),
    time("created_at"),
    text("phase"),
    text("state_reason"),
    text("engine_version", null=True),
    text("fingerprint"),
    json("home", null=True),
    json("hardware", null=True),
    json("verdict", null=True),
    sa.Column("best_trial", sa.Integer),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("window_id", sa.Text, sa.ForeignKey("windows.id", ondelete="SET NULL")),
    text("run_dir", null=True),
    time("started_at", null=True),
    time("finished_at", null=True),
    time("updated_at", null=True),
    sa.Column("version", sa.Integer, nullable=False),
    one_of("state", STUDY_STATES),
    sa.Index(None, "state", "priority"),
    sa.Index(None, "created_at", "id"),
    sa.Index(None, "window_id"),
)

shares = sa.Table(
    "shares",
    metadata,
    of_study(),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    json("home", null=True),
    sa.Column("taken", sa.Boolean(create_constraint=False), nullable=False),
    text("ending"),
    text("reason"),
    sa.PrimaryKeyConstraint("study_id", "host"),
    one_of("ending", ("", *STUDY_STATES)),
    sa.Index(None, "host"),
)

trials = sa.Table(
    "trials",
    metadata,
    of_study(),
    sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    text("arm"),
    json("params"),
    time("created_at"),
    json("effective"),
    text("canonical_key"),
    text("phase"),
    text("launch_command"),
    json("env_names"),
    text("run_id", null=True),
    sa.Column("host", sa.Text, nullable=False),
    text("engine_version", null=True),
    text("driver_version", null=True),
    json("timings"),
    sa.Column("output_tok_s", Real),
    sa.Column("accept_len", Real),
    sa.Column("accept_rate", Real),
    sa.Column("step_ms", Real),
    json("metrics"),
    json("failure", null=True),
    json("output_check", null=True),
    json("running_config", null=True),
    json("warnings"),
    sa.Column("optuna_number", sa.Integer),
    sa.Column("told", sa.Boolean(create_constraint=False), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    time("started_at", null=True),
    time("finished_at", null=True),
    sa.PrimaryKeyConstraint("study_id", "number"),
    one_of("state", TRIAL_STATES),
    one_of("kind", TRIAL_KINDS),
    sa.CheckConstraint("number >= 0", name="number"),
    sa.CheckConstraint("attempt >= 1", name="attempt"),
    sa.CheckConstraint("output_tok_s IS NULL OR output_tok_s >= 0", name="output_tok_s"),
    sa.CheckConstraint("accept_rate IS NULL OR (accept_rate >= 0 AND accept_rate <= 1)", name="accept_rate"),
    sa.Index(None, "study_id", "state", "number"),
    # Ends with the number, or SQLite would read the whole study in the order of the key.
    sa.Index(None, "study_id", "canonical_key", "number"),
    sa.Index("ix_trials_live", "study_id", "number", sqlite_where=IS_LIVE, postgresql_where=IS_LIVE),
    sa.Index("ix_trials_untold", "study_id", "number", sqlite_where=IS_UNTOLD, postgresql_where=IS_UNTOLD),
    sa.Index(None, "study_id", "output_tok_s"),
    sa.Index(None, "host", "kind", "started_at"),
    sa.Index(None, "run_id"),
)

measurements = sa.Table(
    "measurements",
    metadata,
    serial(),
    sa.Column("study_id", sa.Text, nullable=False),
    sa.Column("trial_number", sa.Integer, nullable=False),
    text("workload_fingerprint"),
    text("path"),
    json("tok_s"),
    json("metrics"),
    time("started_at"),
    sa.Column("bench_s", Real, nullable=False),
    sa.Column("ended_early", sa.Boolean(create_constraint=False), nullable=False),
    text("early_reason"),
    json("warnings"),
    of_trial("trial_number"),
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
    of_trial("number"),
)

series = sa.Table(
    "series",
    metadata,
    sa.Column("study_id", sa.Text, nullable=False),
    sa.Column("trial_number", sa.Integer, nullable=False, autoincrement=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    time("started_at"),
    sa.Column("points", sa.Integer, nullable=False),
    sa.Column("codec", sa.Text, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("study_id", "trial_number", "source", "name"),
    of_trial("trial_number"),
)

events = sa.Table(
    "events",
    metadata,
    serial(),
    of_study(null=True),
    sa.Column("kind", sa.Text, nullable=False),
    json("data"),
    time("at"),
    sa.Index(None, "study_id", "id"),
    sa.Index(None, "at"),
    sqlite_autoincrement=True,
)

verdicts = sa.Table(
    "verdicts",
    metadata,
    serial(),
    of_study(),
    text("candidate_key"),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("ratio", Real),
    sa.Column("ci_low", Real),
    sa.Column("ci_high", Real),
    sa.Column("restarts", sa.Integer, nullable=False),
    json("pairs"),
    time("at"),
    one_of("outcome", VERDICT_OUTCOMES),
    sa.Index(None, "study_id", "id"),
    sqlite_autoincrement=True,
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text),
    sa.Column("fence", sa.BigInteger, nullable=False),
    time("until"),
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
    json("scopes"),
    time("created_at"),
    time("expires_at", null=True),
    time("revoked_at", null=True),
    time("last_used_at", null=True),
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
    json("response", null=True),
    time("created_at"),
    sa.Index(None, "created_at"),
)

webhooks = sa.Table(
    "webhooks",
    metadata,
    serial(),
    of_study(null=True),
    text("target"),
    sa.Column("kind", sa.Text, nullable=False),
    json("payload"),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    time("created_at"),
    time("next_at"),
    time("sent_at", null=True),
    text("last_error"),
    one_of("state", WEBHOOK_STATES),
    sa.CheckConstraint("attempts >= 0", name="attempts"),
    sa.Index(None, "state", "next_at"),
    sa.Index(None, "study_id"),
    sqlite_autoincrement=True,
)
