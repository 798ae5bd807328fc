"""When a key was last used, roughly: what a rotation waits for."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("keys", sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True))
