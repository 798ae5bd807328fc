"""What the exposures of a block add up to, and which outcomes came too late: counted once."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_COUNTS = (
    "treatment",
    "control",
    "partial",
    "in_flight",
    "excluded",
    "own",
    "returned",
    "strayed",
)

_FILL = """
WITH met AS (
    SELECT experiment_id, pseudonym, block, arm,
        row_number() OVER (PARTITION BY experiment_id, pseudonym ORDER BY block) AS number
    FROM exposures
    WHERE pseudonym IS NOT NULL AND arm IN ('treatment', 'control')
), users AS (
    SELECT experiment_id, min(block) FILTER (WHERE number = 2) AS returned,
        CASE WHEN count(DISTINCT arm) = 2 THEN greatest(
            min(block) FILTER (WHERE arm = 'treatment'), min(block) FILTER (WHERE arm = 'control')
        ) END AS strayed
    FROM met
    GROUP BY experiment_id, pseudonym
    HAVING count(*) >= 2
), counted AS (
    SELECT p.experiment_id, p.block,
        count(*) FILTER (WHERE arm = 'treatment') AS treatment,
        count(*) FILTER (WHERE arm = 'control') AS control,
        count(*) FILTER (WHERE arm = 'partial') AS partial,
        count(*) FILTER (WHERE arm = 'in_flight') AS in_flight,
        count(*) FILTER (WHERE arm = 'excluded') AS excluded,
        count(*) FILTER (
            WHERE p.commit_sha = x.treatment_commit AND arm IN ('treatment', 'control', 'partial')
        ) AS own,
        0 AS returned, 0 AS strayed
    FROM exposures AS p JOIN experiments AS x USING (experiment_id)
    GROUP BY p.experiment_id, p.block
    UNION ALL
    SELECT experiment_id, returned, 0, 0, 0, 0, 0, 0, 1, 0 FROM users
    UNION ALL
    SELECT experiment_id, strayed, 0, 0, 0, 0, 0, 0, 0, 1 FROM users WHERE strayed IS NOT NULL
)
INSERT INTO block_units (
    experiment_id, block, treatment, control, partial, in_flight, excluded, own, returned, strayed
)
SELECT experiment_id, block, sum(treatment), sum(control), sum(partial), sum(in_flight),
    sum(excluded), sum(own), sum(returned), sum(strayed)
FROM counted
GROUP BY experiment_id, block
"""

_MARK = """
UPDATE {conversions} AS c SET late = true
FROM {exposures} AS p, experiments AS x
CROSS JOIN LATERAL jsonb_array_elements(
    jsonb_build_array(x.policy -> 'target') || (x.policy -> 'guardrails')
) AS m
WHERE p.experiment_id = c.experiment_id AND p.unit = c.unit AND x.experiment_id = c.experiment_id
  AND m ->> 'name' = c.metric
  AND c.received_at > p.block + interval '5 minutes' + make_interval(
      secs => (m ->> 'window_seconds')::float + (x.policy ->> 'grace_seconds')::float
  )
"""


def upgrade() -> None:
    op.create_table(
        "block_units",
        sa.Column("experiment_id", sa.Text, nullable=False),
        sa.Column("block", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _COUNTS),
        sa.PrimaryKeyConstraint("experiment_id", "block", name="pk_block_units"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name="fk_block_units_experiment_id",
        ),
    )
    op.execute(_FILL)
    for prefix in ("", "tombstone_"):
        table = f"{prefix}conversions"
        op.add_column(
            table, sa.Column("late", sa.Boolean, nullable=False, server_default=sa.text("false"))
        )
        op.execute(_MARK.format(conversions=table, exposures=f"{prefix}exposures"))
        op.alter_column(table, "late", server_default=None)
    op.create_index(
        "ix_conversions_experiment_id_metric",
        "conversions",
        ["experiment_id", "metric"],
        postgresql_where=sa.text("late"),
    )
