"""How the service fares: its last walk, and the last self-check of each day."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "walks",
        sa.Column("place", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("walked_to", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.CheckConstraint("place = 1", name=op.f("ck_walks_one")),
        sa.PrimaryKeyConstraint("place", name=op.f("pk_walks")),
    )
    op.create_table(
        "self_checks",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("equal", sa.Boolean(), nullable=False),
        sa.Column("checked_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_self_checks")),
    )
    op.create_index(
        op.f("ix_self_checks_day"),
        "self_checks",
        ["day"],
        postgresql_where=sa.text("NOT equal"),
    )
