"""The flags that strata differ by, so that independent ones are pooled and others split."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.add_column("strata", sa.Column("lineage", sa.Text))
    op.add_column("strata", sa.Column("flags", JSONB))
