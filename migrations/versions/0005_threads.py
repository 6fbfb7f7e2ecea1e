"""threads of the gateway, and the agent link"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "drafts",
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("message_id"),
    )
    op.create_table(
        "inbound",
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("inbound_id", sa.Text(), nullable=False),
        sa.Column("chat_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("passes", sa.Integer(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("row"),
        sa.UniqueConstraint("inbound_id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("inbound", schema=None) as batch_op:
        batch_op.create_index("inbound_of", ["chat_id", "thread_id", "row"], unique=False)

    op.create_table(
        "link_spools",
        sa.Column("spool", sa.Text(), nullable=False),
        sa.Column("received", sa.Integer(), nullable=False),
        sa.Column("refused", sa.Text(), nullable=False),
        sa.Column("hello", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("spool"),
    )
    op.create_table(
        "thread_messages",
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("chat_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("row"),
        sa.UniqueConstraint("message_id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("thread_messages", schema=None) as batch_op:
        batch_op.create_index("thread_messages_by_age", ["created_at"], unique=False)
        batch_op.create_index("thread_messages_of", ["chat_id", "thread_id", "row"], unique=False)

    op.create_table(
        "threads",
        sa.Column("chat_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("last_row", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("chat_id", "thread_id"),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("threads", schema=None) as batch_op:
        batch_op.create_index("threads_by_news", ["last_row"], unique=False)

    op.create_table(
        "thread_reads",
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("chat_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("device_id", "chat_id", "thread_id"),
    )


def downgrade() -> None:
    op.drop_table("thread_reads")
    with op.batch_alter_table("threads", schema=None) as batch_op:
        batch_op.drop_index("threads_by_news")

    op.drop_table("threads")
    with op.batch_alter_table("thread_messages", schema=None) as batch_op:
        batch_op.drop_index("thread_messages_of")
        batch_op.drop_index("thread_messages_by_age")

    op.drop_table("thread_messages")
    op.drop_table("link_spools")
    with op.batch_alter_table("inbound", schema=None) as batch_op:
        batch_op.drop_index("inbound_of")

    op.drop_table("inbound")
    op.drop_table("drafts")
