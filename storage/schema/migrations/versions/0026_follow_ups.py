"""The effect of units that come after a verdict, while both arms are still served."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSON

revision = "0026"
down_revision = "0025"


def _moment(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "follow_ups",
        sa.Column("experiment_id", sa.Text),
        _moment("begins_at"),
        _moment("ends_at"),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("effect", JSON),
        sa.Column("log_e", sa.Double),
        _moment("as_of", nullable=True),
        _moment("read_to", nullable=True),
        sa.PrimaryKeyConstraint("experiment_id", name="pk_follow_ups"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name="fk_follow_ups_experiment_id",
        ),
        sa.CheckConstraint(
            "state IN ('running', 'stopped', 'final')", name=op.f("ck_follow_ups_state")
        ),
    )
