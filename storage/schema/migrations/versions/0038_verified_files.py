"""Files of the lake are read again in turn: when each was last, and its fault."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    op.add_column("sealed_hours", sa.Column("verified_at", sa.DateTime(timezone=True)))
    op.add_column("sealed_hours", sa.Column("fault", sa.Text()))
