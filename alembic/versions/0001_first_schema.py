"""The first schema: hosts, windows, studies, trials and all that is measured of them.

Revision: 0001, after nothing.
"""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table, and on PostgreSQL the schema in which Optuna makes its own."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE SCHEMA IF NOT EXISTS optuna")
    _hosts()
    _idempotency()
    _keys()
    _windows()
    _studies()
    _window_runs()
    _events()
    _leases()
    _trials()
    _verdicts()
    _webhooks()
    _logs()
    _measurements()
    _series()
    _request_batches()


def downgrade() -> None:
    """Remove every table of ours; Optuna's are not touched."""
    for table in (
        "request_batches",
        "series",
        "measurements",
        "logs",
        "webhooks",
        "verdicts",
        "trials",
        "leases",
        "events",
        "window_runs",
        "studies",
        "windows",
        "keys",
        "idempotency",
        "hosts",
    ):
        op.drop_table(table)


def _hosts() -> None:
    op.create_table(
        "hosts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("entry", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("host_key", sa.Text(), nullable=True),
        sa.Column("needs_attention", sa.Text(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("home", sa.JSON(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_hosts")),
    )


def _idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("response", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("caller", "key", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_created_at"), "idempotency", ["created_at"], unique=False)


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
        sa.UniqueConstraint("prefix", name=op.f("uq_keys_prefix")),
    )
    op.create_index(
        "uq_keys_name_active",
        "keys",
        ["name"],
        unique=True,
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    )


def _windows() -> None:
    op.create_table(
        "windows",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("start_cron", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.Text(), nullable=True),
        sa.Column("duration_min", sa.Integer(), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.CheckConstraint("duration_min IS NULL OR duration_min > 0", name=op.f("ck_windows_duration_min")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_windows")),
        sa.UniqueConstraint("name", name=op.f("uq_windows_name")),
    )


def _studies() -> None:
    op.create_table(
        "studies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("engine_version", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("home", sa.JSON(), nullable=True),
        sa.Column("hardware", sa.JSON(), nullable=True),
        sa.Column("verdict", sa.JSON(), nullable=True),
        sa.Column("best_trial", sa.Integer(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("window_id", sa.Text(), nullable=True),
        sa.Column("run_dir", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "state IN ('created', 'queued', 'running', 'paused', 'waiting_window', 'stopping', 'finished', 'failed', "
            "'needs_attention')",
            name=op.f("ck_studies_state"),
        ),
        sa.ForeignKeyConstraint(
            ["window_id"], ["windows.id"], name=op.f("fk_studies_window_id_windows"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_studies")),
        sa.UniqueConstraint("name", name=op.f("uq_studies_name")),
    )
    op.create_index(op.f("ix_studies_created_at_id"), "studies", ["created_at", "id"], unique=False)
    op.create_index(op.f("ix_studies_host"), "studies", ["host"], unique=False)
    op.create_index(op.f("ix_studies_state_priority"), "studies", ["state", "priority"], unique=False)
    op.create_index(op.f("ix_studies_window_id"), "studies", ["window_id"], unique=False)


def _window_runs() -> None:
    op.create_table(
        "window_runs",
        sa.Column("window_id", sa.Text(), nullable=False),
        sa.Column("local_date", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closes_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("studies", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.CheckConstraint("status IN ('open', 'ran', 'missed')", name=op.f("ck_window_runs_status")),
        sa.ForeignKeyConstraint(
            ["window_id"], ["windows.id"], name=op.f("fk_window_runs_window_id_windows"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("window_id", "local_date", name=op.f("pk_window_runs")),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("study_id", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name=op.f("fk_events_study_id_studies"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_at"), "events", ["at"], unique=False)
    op.create_index(op.f("ix_events_study_id_id"), "events", ["study_id", "id"], unique=False)


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("study_id", sa.Text(), nullable=True),
        sa.CheckConstraint("fence >= 1", name=op.f("ck_leases_fence")),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name=op.f("fk_leases_study_id_studies"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_leases")),
    )
    op.create_index(op.f("ix_leases_study_id"), "leases", ["study_id"], unique=False)


def _trials() -> None:
    op.create_table(
        "trials",
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("effective", sa.JSON(), nullable=False),
        sa.Column("canonical_key", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("launch_command", sa.Text(), nullable=False),
        sa.Column("env_names", sa.JSON(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("engine_version", sa.Text(), nullable=True),
        sa.Column("driver_version", sa.Text(), nullable=True),
        sa.Column("timings", sa.JSON(), nullable=False),
        sa.Column("output_tok_s", sa.Double(), nullable=True),
        sa.Column("accept_len", sa.Double(), nullable=True),
        sa.Column("accept_rate", sa.Double(), nullable=True),
        sa.Column("step_ms", sa.Double(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("failure", sa.JSON(), nullable=True),
        sa.Column("output_check", sa.JSON(), nullable=True),
        sa.Column("running_config", sa.JSON(), nullable=True),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("optuna_number", sa.Integer(), nullable=True),
        sa.Column("told", sa.Boolean(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('baseline', 'explore', 'confirm', 'self_test')", name=op.f("ck_trials_kind")),
        sa.CheckConstraint(
            "state IN ('proposed', 'launching', 'warming', 'measuring', 'complete', 'pruned', 'infeasible', "
            "'interrupted')",
            name=op.f("ck_trials_state"),
        ),
        sa.CheckConstraint(
            "accept_rate IS NULL OR (accept_rate >= 0 AND accept_rate <= 1)", name=op.f("ck_trials_accept_rate")
        ),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_trials_attempt")),
        sa.CheckConstraint("number >= 0", name=op.f("ck_trials_number")),
        sa.CheckConstraint("output_tok_s IS NULL OR output_tok_s >= 0", name=op.f("ck_trials_output_tok_s")),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name=op.f("fk_trials_study_id_studies"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("study_id", "number", name=op.f("pk_trials")),
    )
    op.create_index(op.f("ix_trials_host_kind_started_at"), "trials", ["host", "kind", "started_at"], unique=False)
    op.create_index(op.f("ix_trials_run_id"), "trials", ["run_id"], unique=False)
    op.create_index(
        op.f("ix_trials_study_id_canonical_key_number"),
        "trials",
        ["study_id", "canonical_key", "number"],
        unique=False,
    )
    live = sa.text("state IN ('proposed', 'launching', 'warming', 'measuring')")
    untold = sa.text("optuna_number IS NOT NULL AND NOT told")
    for name, where in (("ix_trials_live", live), ("ix_trials_untold", untold)):
        op.create_index(
            name, "trials", ["study_id", "number"], unique=False, sqlite_where=where, postgresql_where=where
        )
    op.create_index(op.f("ix_trials_study_id_output_tok_s"), "trials", ["study_id", "output_tok_s"], unique=False)
    op.create_index(op.f("ix_trials_study_id_state_kind"), "trials", ["study_id", "state", "kind"], unique=False)


def _verdicts() -> None:
    op.create_table(
        "verdicts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("candidate_key", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("ci_low", sa.Double(), nullable=True),
        sa.Column("ci_high", sa.Double(), nullable=True),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("pairs", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('win', 'worse', 'no_significant_win', 'undecided')", name=op.f("ck_verdicts_outcome")
        ),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name=op.f("fk_verdicts_study_id_studies"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdicts")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_verdicts_study_id_id"), "verdicts", ["study_id", "id"], unique=False)


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("study_id", sa.Text(), nullable=True),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.CheckConstraint("state IN ('pending', 'sent', 'given_up')", name=op.f("ck_webhooks_state")),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_webhooks_attempts")),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name=op.f("fk_webhooks_study_id_studies"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_webhooks_state_next_at"), "webhooks", ["state", "next_at"], unique=False)
    op.create_index(op.f("ix_webhooks_study_id"), "webhooks", ["study_id"], unique=False)


def _logs() -> None:
    op.create_table(
        "logs",
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("codec", sa.Text(), nullable=False),
        sa.Column("original_bytes", sa.BigInteger(), nullable=False),
        sa.Column("cut_bytes", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id", "number"],
            ["trials.study_id", "trials.number"],
            name=op.f("fk_logs_study_id_number_trials"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("study_id", "number", name=op.f("pk_logs")),
    )


def _measurements() -> None:
    op.create_table(
        "measurements",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("trial_number", sa.Integer(), nullable=False),
        sa.Column("workload_fingerprint", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("tok_s", sa.JSON(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("bench_s", sa.Double(), nullable=False),
        sa.Column("ended_early", sa.Boolean(), nullable=False),
        sa.Column("early_reason", sa.Text(), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.CheckConstraint("bench_s >= 0", name=op.f("ck_measurements_bench_s")),
        sa.ForeignKeyConstraint(
            ["study_id", "trial_number"],
            ["trials.study_id", "trials.number"],
            name=op.f("fk_measurements_study_id_trial_number_trials"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurements")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f("ix_measurements_study_id_trial_number"), "measurements", ["study_id", "trial_number"], unique=False
    )


def _series() -> None:
    op.create_table(
        "series",
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("trial_number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("codec", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id", "trial_number"],
            ["trials.study_id", "trials.number"],
            name=op.f("fk_series_study_id_trial_number_trials"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("study_id", "trial_number", "source", "name", name=op.f("pk_series")),
    )


def _request_batches() -> None:
    op.create_table(
        "request_batches",
        sa.Column(
            "measurement_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("codec", sa.Text(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["measurement_id"],
            ["measurements.id"],
            name=op.f("fk_request_batches_measurement_id_measurements"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("measurement_id", name=op.f("pk_request_batches")),
    )
