"""pairing: API tokens, refresh tokens, tickets, confirmation"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def _sessions() -> list[sa.Column[Any]]:
    return [
        sa.Column("api_hash", sa.Text(), nullable=True),
        sa.Column("kid", sa.Text(), nullable=True),
        sa.Column("renewal", sa.Text(), nullable=True),
        sa.Column("term", sa.Integer(), server_default="0", nullable=False),
        sa.Column("refresh_number", sa.Integer(), server_default="0", nullable=False),
        sa.Column("refresh_state", sa.Text(), server_default="seen", nullable=False),
    ]


def _offers() -> list[sa.Column[Any]]:
    return [
        sa.Column("api_hash", sa.Text(), nullable=True),
        sa.Column("approval", sa.Text(), nullable=True),
        sa.Column("claim", sa.Text(), nullable=True),
        sa.Column("claimant", sa.Text(), nullable=True),
        sa.Column("confirm", sa.Text(), nullable=True),
        sa.Column("confirm_until", sa.Float(), nullable=True),
        sa.Column("allowed", sa.Integer(), nullable=True),
    ]


def upgrade() -> None:
    # Not by batch: that would make the table anew, and its rows' dependants would go with the old one.
    for column in _sessions():
        op.add_column("sessions", column)
    op.create_index("sessions_by_api", "sessions", ["api_hash"], unique=True)
    for column in _offers():
        op.add_column("offers", column)
    op.create_index("offers_by_confirm", "offers", ["confirm"], unique=False)
    op.create_table(
        "refresh_tokens",
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.session_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token_hash"),
    )
    op.create_index("refresh_tokens_of_session", "refresh_tokens", ["session_id", "number"], unique=False)
    op.create_table(
        "tickets",
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.session_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token_hash"),
    )
    op.create_index("tickets_by_end", "tickets", ["expires_at"], unique=False)


def downgrade() -> None:
    op.drop_index("tickets_by_end", "tickets")
    op.drop_table("tickets")
    op.drop_index("refresh_tokens_of_session", "refresh_tokens")
    op.drop_table("refresh_tokens")
    op.drop_index("offers_by_confirm", "offers")
    for column in reversed(_offers()):
        op.drop_column("offers", column.name)
    op.drop_index("sessions_by_api", "sessions")
    for column in reversed(_sessions()):
        op.drop_column("sessions", column.name)
