"""A study over several hosts: one row for each of them, with its home and how the work there ended.

And trials of one state in the order of their numbers without a sort.

Revision: 0002, after 0001.
"""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATES = (
    "'', 'created', 'queued', 'running', 'paused', 'waiting_window', 'stopping', 'finished', 'failed', "
    "'needs_attention'"
)


def upgrade() -> None:
    """Give every study the row of its one host. Whether home is back is only unknown of those that are at work."""
    op.create_table(
        "shares",
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("home", sa.JSON(), nullable=True),
        sa.Column("taken", sa.Boolean(), nullable=False),
        sa.Column("ending", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint(f"ending IN ({STATES})", name=op.f("ck_shares_ending")),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name=op.f("fk_shares_study_id_studies"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("study_id", "host", name=op.f("pk_shares")),
    )
    op.create_index(op.f("ix_shares_host"), "shares", ["host"], unique=False)
    op.execute(
        "INSERT INTO shares (study_id, host, position, home, taken, ending, reason) "
        "SELECT id, host, 0, home, home IS NOT NULL AND state IN ('running', 'stopping', 'needs_attention'), '', '' "
        "FROM studies"
    )
    op.drop_index(op.f("ix_studies_host"), "studies")
    op.drop_index(op.f("ix_trials_study_id_state_kind"), "trials")
    op.create_index(op.f("ix_trials_study_id_state_number"), "trials", ["study_id", "state", "number"], unique=False)


def downgrade() -> None:
    """Go back to one host for each study; what other hosts had is lost."""
    op.drop_index(op.f("ix_trials_study_id_state_number"), "trials")
    op.create_index(op.f("ix_trials_study_id_state_kind"), "trials", ["study_id", "state", "kind"], unique=False)
    op.create_index(op.f("ix_studies_host"), "studies", ["host"], unique=False)
    op.drop_table("shares")
