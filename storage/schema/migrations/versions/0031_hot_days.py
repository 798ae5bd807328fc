"""Hot days: which sealed hours the lake alone holds."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.add_column("sealed_hours", sa.Column("moved_at", sa.DateTime(timezone=True)))
    op.create_check_constraint(
        op.f("ck_sealed_hours_moved"),
        "sealed_hours",
        "moved_at IS NULL OR sealed_at IS NOT NULL",
    )
