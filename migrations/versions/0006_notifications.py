"""notifications of phones"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notifications",
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("package_name", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("sub_text", sa.Text(), nullable=True),
        sa.Column("posted_at", sa.Integer(), nullable=True),
        sa.Column("received_at", sa.Float(), nullable=False),
        sa.Column("removed_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("row"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("notifications", schema=None) as batch_op:
        batch_op.create_index("notification_once", ["device_id", "key"], unique=True)
        batch_op.create_index("notifications_by_age", ["received_at"], unique=False)
        batch_op.create_index("notifications_of_device", ["device_id"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("notifications", schema=None) as batch_op:
        batch_op.drop_index("notifications_of_device")
        batch_op.drop_index("notifications_by_age")
        batch_op.drop_index("notification_once")

    op.drop_table("notifications")
