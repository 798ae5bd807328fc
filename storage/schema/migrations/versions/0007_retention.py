"""Which days of runtime events were written later, and which are gone."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

# When the days that stand by now were last written is not known: today at the latest.
_STANDING = """
INSERT INTO replayed_days (day, written_on)
SELECT to_date(right(c.relname, 8), 'YYYYMMDD'), (clock_timestamp() AT TIME ZONE 'UTC')::date
FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = 'runtime_events'::regclass
  AND c.relname ~ '^runtime_events_[0-9]{8}$'
  AND to_date(right(c.relname, 8), 'YYYYMMDD') < (clock_timestamp() AT TIME ZONE 'UTC')::date
"""


def upgrade() -> None:
    op.create_table(
        "replayed_days",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("written_on", sa.Date(), nullable=False),
    )
    op.create_index(op.f("ix_replayed_days_day_written_on"), "replayed_days", ["day", "written_on"])
    op.create_table(
        "dropped_days",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("dropped_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_dropped_days")),
    )
    op.execute(_STANDING)
