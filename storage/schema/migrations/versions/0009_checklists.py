"""Whether projects are wired right: what came of late, what was refused, and the ten lines."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "recent_counts",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("page_view", sa.Boolean(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("committed", sa.BigInteger(), nullable=False),
        sa.Column("routed", sa.BigInteger(), nullable=False),
        sa.Column("named", sa.BigInteger(), nullable=False),
        sa.Column("skewed", sa.BigInteger(), nullable=False),
        sa.Column("skew_seconds", sa.Double(), nullable=False),
        sa.Column("newest_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("graph_id", sa.Text()),
        sa.Column("matched", sa.Boolean()),
        sa.CheckConstraint(
            "kind IN ('all', 'commit', 'route')", name=op.f("ck_recent_counts_kind")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_recent_counts_project_id")
        ),
        sa.PrimaryKeyConstraint(
            "project_id",
            "environment",
            "minute",
            "kind",
            "value",
            "page_view",
            name=op.f("pk_recent_counts"),
        ),
    )
    op.create_table(
        "seen_names",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("newest_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_seen_names_project_id")
        ),
        sa.PrimaryKeyConstraint("project_id", "event", name=op.f("pk_seen_names")),
    )
    op.create_table(
        "admissions",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("limited", sa.BigInteger(), nullable=False),
        sa.Column("accepted", sa.BigInteger(), nullable=False),
        sa.Column("late", sa.BigInteger(), nullable=False),
        sa.Column("rejected", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_admissions_project_id")
        ),
        sa.PrimaryKeyConstraint("project_id", "minute", name=op.f("pk_admissions")),
    )
    op.create_index(op.f("ix_admissions_minute"), "admissions", ["minute"])
    op.create_table(
        "checklists",
        sa.Column("project_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("lines", sa.JSON(), nullable=False),
        sa.Column("newest_event_at", sa.DateTime(timezone=True)),
        sa.Column("setup", sa.Text(), nullable=False),
        sa.Column("revenue_events", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("revenue_tested", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("revenue_joined", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_checklists_project_id")
        ),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_checklists")),
    )
    op.create_table(
        "checklist_marks",
        sa.Column("place", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("read_to", sa.DateTime(timezone=True)),
        sa.Column("pages", sa.JSON(), nullable=False),
        sa.Column("revenue_to", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("place = 1", name=op.f("ck_checklist_marks_one")),
        sa.PrimaryKeyConstraint("place", name=op.f("pk_checklist_marks")),
    )
    op.create_index(
        op.f("ix_deploys_project_id_recorded_at"), "deploys", ["project_id", "recorded_at"]
    )
