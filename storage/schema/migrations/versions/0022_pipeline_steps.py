"""How long each step of the pipeline took, and how far the fast schedule has looked."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0020"


def upgrade() -> None:
    op.drop_table("walks")
    op.create_table(
        "pipeline_steps",
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("stage", name=op.f("pk_pipeline_steps")),
    )
    op.add_column("ticks", sa.Column("looked_to", sa.DateTime(timezone=True), nullable=True))
    # Which answers no run had shown: every verdict is published by a run now.
    op.execute("DELETE FROM cursors WHERE stage = 'turned'")
