"""Warm-up: units that are exposed before caches are warm are in neither arm, but counted."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

_CONSTRAINT = "ck_exposures_arm"


def upgrade() -> None:
    # Checked for what comes: nothing that is stored is warming.
    op.execute(f"ALTER TABLE exposures DROP CONSTRAINT {_CONSTRAINT}")
    op.execute(
        f"ALTER TABLE exposures ADD CONSTRAINT {_CONSTRAINT} CHECK (arm IN"
        " ('treatment', 'control', 'partial', 'in_flight', 'excluded', 'warming')) NOT VALID"
    )
    op.execute(f"ALTER TABLE exposures VALIDATE CONSTRAINT {_CONSTRAINT}")
    op.add_column(
        "block_units",
        # A constant default is no rewriting of what is stored.
        sa.Column("warming", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
    )
    op.alter_column("block_units", "warming", server_default=None)
