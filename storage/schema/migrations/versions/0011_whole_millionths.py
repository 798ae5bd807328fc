"""Values as whole millionths within 10⁹; experiments set aside, and the ticks that failed."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_LARGEST = 10**15

# From its shortest decimal text a value is rounded to six decimals, a tie to the even millionth.
# What is no number is dropped, and what is larger than the bound is kept as the bound.
_MILLIONTHS = f"""
CASE
    WHEN value = 'NaN' THEN NULL
    WHEN value >= 1e9 THEN {_LARGEST}
    WHEN value <= -1e9 THEN -{_LARGEST}
    WHEN mod(abs(value::text::numeric) * 1000000, 1) = 0.5
        THEN 2 * round(value::text::numeric * 500000)
    ELSE round(value::text::numeric * 1000000)
END::bigint
"""

# Without an id of its own an event is known by name, time and value; a delivery that comes after
# the migration writes the value as millionths.
_KEYS = f"""
UPDATE amounts AS a
SET key = regexp_replace(a.key, ' [^ ]+$', ' ' || told.millionths)
FROM (
    SELECT ctid, {_MILLIONTHS.replace("value", "said")} AS millionths, said
    FROM (
        SELECT ctid, (regexp_match(key, ' ([^ ]+)$'))[1]::double precision AS said
        FROM amounts
        WHERE key ~ '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} [^ ]+ -?[0-9.]+(e[-+][0-9]+)?$'
    ) AS read
) AS told
WHERE a.ctid = told.ctid AND told.millionths = told.said::text::numeric * 1000000
"""

_AMOUNTS = ("amounts", "tombstone_amounts")

# A revenue event may be worth more than a `value`, up to what 64 bits hold of its millionths.
_BOUNDED = """
UPDATE {table} AS a
SET value = greatest(least(value, limits.most), -limits.most)
FROM (
    SELECT a.ctid, CASE WHEN EXISTS (
        SELECT FROM experiments AS x JOIN revenue_events AS r USING (project_id)
        WHERE x.experiment_id = a.experiment_id AND r.idempotency_key = a.key
    ) THEN 9223372036854 ELSE 1e9 END AS most
    FROM {table} AS a
    WHERE abs(a.value) > 1e9
) AS limits
WHERE a.ctid = limits.ctid
"""

# As above, for what may be larger than a runtime event's value.
_WHOLE = """
CASE
    WHEN mod(abs(value::text::numeric) * 1000000, 1) = 0.5
        THEN 2 * round(value::text::numeric * 500000)
    ELSE round(value::text::numeric * 1000000)
END::bigint
"""


def upgrade() -> None:
    op.alter_column(
        "runtime_events",
        "value",
        existing_type=sa.Double(),
        type_=sa.BigInteger(),
        postgresql_using=_MILLIONTHS,
    )
    op.create_check_constraint(
        op.f("ck_runtime_events_value"),
        "runtime_events",
        f"value BETWEEN -{_LARGEST} AND {_LARGEST}",
    )
    op.execute(sa.text(_KEYS))
    for table in _AMOUNTS:
        op.execute(sa.text(f"DELETE FROM {table} WHERE value = 'NaN'"))
        op.execute(sa.text(_BOUNDED.format(table=table)))
        op.alter_column(
            table,
            "value",
            existing_type=sa.Double(),
            existing_nullable=False,
            type_=sa.BigInteger(),
            postgresql_using=_WHOLE,
        )
    _create_tables()


def _create_tables() -> None:
    op.create_table(
        "set_aside",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("first_failed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_tried_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "stage IN ('exposures', 'cells', 'evidence', 'verdicts')",
            name=op.f("ck_set_aside_stage"),
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name=op.f("fk_set_aside_experiment_id"),
        ),
        sa.PrimaryKeyConstraint("experiment_id", name=op.f("pk_set_aside")),
    )
    op.create_table(
        "ticks",
        sa.Column("place", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("succeeded_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("place = 1", name=op.f("ck_ticks_one")),
        sa.PrimaryKeyConstraint("place", name=op.f("pk_ticks")),
    )
    op.create_table(
        "failed_ticks",
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("stage", name=op.f("pk_failed_ticks")),
    )
