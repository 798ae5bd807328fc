"""The sealed log: hours of runtime events in files, and who must be left out of them."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0023"


def upgrade() -> None:
    # Partitions get the column with their parent; null of every row, it rewrites none.
    op.add_column("runtime_events", sa.Column("part", sa.SmallInteger(), nullable=True))
    op.create_table(
        "sealed_hours",
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("part", sa.SmallInteger(), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sealed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("sha256", sa.LargeBinary(), nullable=True),
        sa.Column("last_erasure", sa.BigInteger(), nullable=True),
        sa.Column("compared_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("part >= 0", name=op.f("ck_sealed_hours_part")),
        sa.CheckConstraint(
            "(sealed_at IS NULL) = (rows IS NULL) AND (sealed_at IS NULL) = (last_erasure IS NULL)",
            name=op.f("ck_sealed_hours_sealed"),
        ),
        sa.CheckConstraint(
            "(file IS NOT NULL) = (coalesce(rows, 0) > 0) AND (file IS NULL) = (bytes IS NULL)"
            " AND (file IS NULL) = (sha256 IS NULL)",
            name=op.f("ck_sealed_hours_file"),
        ),
        sa.PrimaryKeyConstraint("hour", "part", name=op.f("pk_sealed_hours")),
        sa.UniqueConstraint("file", name=op.f("uq_sealed_hours_file")),
    )
    op.create_table(
        "replayed_hours",
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("part", sa.SmallInteger(), nullable=False),
    )
    op.create_index(op.f("ix_replayed_hours_hour_part"), "replayed_hours", ["hour", "part"])
    op.create_table(
        "unlisted_files",
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("unlisted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("file", name=op.f("pk_unlisted_files")),
    )
    op.create_table(
        "erasures",
        sa.Column("erasure_id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("pseudonym", sa.LargeBinary(), nullable=True),
        sa.Column("erased_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("num_nonnulls(session_id, pseudonym) = 1", name=op.f("ck_erasures_one")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_erasures_project_id")
        ),
        sa.PrimaryKeyConstraint("erasure_id", name=op.f("pk_erasures")),
    )
    op.create_index(op.f("ix_erasures_project_id"), "erasures", ["project_id"])
    op.create_table(
        "sealing_runs",
        sa.Column(
            "place",
            sa.Integer(),
            server_default=sa.text("1"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint("place = 1", name=op.f("ck_sealing_runs_one")),
        sa.PrimaryKeyConstraint("place", name=op.f("pk_sealing_runs")),
    )
