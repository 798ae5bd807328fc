"""What people who were forgotten contributed, and that a forgetting took place."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "tombstone_exposures",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("exposed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("block", sa.DateTime(timezone=True), nullable=False),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("stratum", sa.Text(), nullable=True),
        sa.Column("commit_sha", sa.Text(), nullable=False),
        sa.Column("pseudonym", sa.LargeBinary(), nullable=True),
        _experiment("tombstone_exposures"),
        sa.PrimaryKeyConstraint("experiment_id", "unit", name=op.f("pk_tombstone_exposures")),
    )
    op.create_table(
        "tombstone_sightings",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        _experiment("tombstone_sightings"),
        sa.PrimaryKeyConstraint(
            "experiment_id", "kind", "unit", name=op.f("pk_tombstone_sightings")
        ),
    )
    op.create_table(
        "tombstone_conversions",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        _experiment("tombstone_conversions"),
        sa.PrimaryKeyConstraint(
            "experiment_id", "metric", "unit", name=op.f("pk_tombstone_conversions")
        ),
    )
    op.create_table(
        "tombstone_amounts",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        _experiment("tombstone_amounts"),
        sa.PrimaryKeyConstraint(
            "experiment_id", "metric", "unit", "key", name=op.f("pk_tombstone_amounts")
        ),
    )
    op.create_table(
        "forgettings",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("forgotten_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("runtime_events", sa.BigInteger(), nullable=False),
        sa.Column("revenue_events", sa.BigInteger(), nullable=False),
        sa.Column("exposures", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("kind IN ('user_ref', 'session')", name=op.f("ck_forgettings_kind")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_forgettings_project_id")
        ),
    )
    op.create_index(op.f("ix_forgettings_project_id"), "forgettings", ["project_id"], unique=False)


def _experiment(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["experiment_id"],
        ["experiments.experiment_id"],
        name=op.f(f"fk_{table}_experiment_id"),
    )
