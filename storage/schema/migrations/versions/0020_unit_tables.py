"""Block, arm and stratum with each crossover and late outcome; unit tables without foreign keys."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0021"

_UNIT_TABLES = ("exposures", "sightings", "conversions", "amounts")

_CROSSOVERS = """
UPDATE {table} AS o SET block = p.block, arm = p.arm, stratum = p.stratum
FROM exposures AS p
WHERE o.kind = 'crossover' AND p.experiment_id = o.experiment_id AND p.unit = o.unit
"""
_LATE = """
UPDATE {table} AS o SET block = p.block, arm = p.arm, stratum = p.stratum
FROM exposures AS p
WHERE o.late AND p.experiment_id = o.experiment_id AND p.unit = o.unit
"""

# Without an id of its own an event is known by name, time and value: the time is written as whole
# microseconds now, as every engine of the pipeline writes it.
_KEYS = r"""
UPDATE {table} AS a
SET key = told.parts[1] || ' '
    || (extract(epoch FROM told.parts[2]::timestamptz) * 1000000)::bigint || ' ' || told.parts[3]
FROM (
    SELECT experiment_id, metric, unit, key, regexp_match(
        key, '^(.*) (\d{{4,}}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d(?::\d\d)?) (-?\d+)$'
    ) AS parts
    FROM {table}
    WHERE key ~ ' \d{{4,}}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d(:\d\d)? -?\d+$'
) AS told
WHERE (a.experiment_id, a.metric, a.unit, a.key)
    = (told.experiment_id, told.metric, told.unit, told.key)
"""


def upgrade() -> None:
    for table in ("sightings", "conversions", "tombstone_sightings", "tombstone_conversions"):
        op.add_column(table, sa.Column("block", sa.DateTime(timezone=True), nullable=True))
        op.add_column(table, sa.Column("arm", sa.Text(), nullable=True))
        op.add_column(table, sa.Column("stratum", sa.Text(), nullable=True))
    for prefix in ("", "tombstone_"):
        op.execute(sa.text(_CROSSOVERS.format(table=f"{prefix}sightings")))
        op.execute(sa.text(_LATE.format(table=f"{prefix}conversions")))
        op.execute(_KEYS.format(table=f"{prefix}amounts"))
    # Checked once for each row of a unit, by whom alone the pipeline can write: an experiment is
    # never deleted.
    for table in _UNIT_TABLES:
        op.drop_constraint(op.f(f"fk_{table}_experiment_id"), table, type_="foreignkey")
