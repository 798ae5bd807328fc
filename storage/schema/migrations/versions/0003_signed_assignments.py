"""Signed assignments: whether a router vouches for an event, and the units that none does."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_CONSTRAINT = "ck_sightings_kind"


def upgrade() -> None:
    op.add_column(
        "runtime_events",
        # A constant default is no rewriting of what is stored.
        sa.Column("signed", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )
    op.drop_constraint(op.f(_CONSTRAINT), "sightings")
    op.create_check_constraint(
        op.f(_CONSTRAINT),
        "sightings",
        "kind IN ('in_flight', 'unknown_commit', 'late', 'unmatched_route', 'crossover',"
        " 'unsigned')",
    )
