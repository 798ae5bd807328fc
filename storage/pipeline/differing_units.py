"""Differing units: the engine lists those whose served rows are unlike the computed rows.

Copying the rows of all units into the store and comparing them there costs more than computing
them. Where a day is whole, no row of a unit is copied.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from psycopg import sql
from sqlalchemy import Connection, LargeBinary, text

from storage.pipeline.comparison import Reach, over_when_first_read
from storage.pipeline.derived import AMOUNTS, CONVERSIONS, EXPOSURES, Derived
from storage.pipeline.engines.copying import copy_rows
from storage.pipeline.engines.engine import Batches, DayEngine
from storage.pipeline.steps import AHEAD, Step
from storage.postgres.engine import SCHEMA

_COMPARED = (EXPOSURES, CONVERSIONS, AMOUNTS)

# Whether a row `r` is of a unit that may be within the reach `b` of its experiment. More rows than
# `comparison.WITHIN` asks for do no harm, as that decides which of them differ.
_EXPOSED = "r.block >= b.from_block AND r.block < b.to_block"
_OUTCOME = """
r.received_at <= b.received_to AND CASE
    WHEN b.from_block = 0 THEN coalesce(p.block, 0) < b.to_block
    ELSE p.block >= b.from_block AND p.block < b.to_block
END
"""
_EXPOSURE = "LEFT JOIN new_exposures AS p ON p.number = r.number AND p.unit = r.unit"


def find_differing_units(
    engine: DayEngine,
    read: Callable[[str], AbstractContextManager[Batches]],
    connection: Connection,
    reaches: Sequence[Reach],
) -> None:
    """Creates `differing_units` in the engine and, until the transaction ends, in the store.

    Args:
        engine: Which computed the whole lives of these experiments.
        read: Reads a statement of the store, as the connection's transaction sees the served rows.
        connection: To a separate reading of the store.
        reaches: How far each experiment is compared.
    """
    ids = [reach.experiment.experiment_id for reach in reaches]
    over = over_when_first_read(connection, ids)
    compared = [reach for reach in reaches if reach.experiment.experiment_id not in over]
    engine.register(
        "compared",
        {"number": "int", "from_block": "bigint", "to_block": "bigint", "received_to": "bigint"},
        [
            (
                each.experiment.number,
                each.from_block or 0,
                each.to_block,
                each.read_to + each.experiment.grace,
            )
            for each in compared
        ],
    )
    for table in _COMPARED:
        with read(_served(table, compared)) as rows:
            engine.copy(f"copied_{table.name}", rows)
        engine.distribute(f"served_{table.name}", f"SELECT * FROM copied_{table.name}", ("unit",))
    for _ in engine.each_part():
        engine.run(_DIFFERING_UNITS)
    connection.execute(
        text(
            "CREATE TEMP TABLE IF NOT EXISTS differing_units (experiment_id text, unit text)"
            " ON COMMIT DROP"
        )
    )
    by_number = {each.experiment.number: each.experiment.experiment_id for each in compared}
    differing = engine.rows("SELECT number, unit FROM differing_units")
    copy_rows(
        connection,
        "differing_units (experiment_id, unit)",
        ((by_number[number], unit) for number, unit in differing),
    )
    connection.execute(text("ANALYZE differing_units"))


def _values(table: Derived) -> tuple[list[str], list[str]]:
    """Returns the columns of a table's key but the experiment, and the others."""
    keys = [each.name for each in table.columns if each.primary_key]
    return keys, [each.name for each in table.columns if not each.primary_key]


def _served(table: Derived, reaches: Sequence[Reach]) -> str:
    """Returns a statement of PostgreSQL for the served rows of the experiments, in their reach."""
    columns = [
        f"encode(r.{each.name}, 'hex') AS {each.name}"
        if isinstance(each.type, LargeBinary)
        else f"r.{each.name}"
        for each in table.columns
    ]
    numbers = [
        sql.SQL("({}, {}, {}, {}, {})")
        .format(
            each.experiment.number,
            each.experiment.experiment_id,
            sql.SQL("{}::bigint").format(each.from_block or 0),
            sql.SQL("{}::bigint").format(each.to_block),
            sql.SQL("{}::bigint").format(each.read_to + each.experiment.grace),
        )
        .as_string()
        for each in reaches
    ] or ["(0, NULL, 0::bigint, 0::bigint, 0::bigint)"]
    within = (
        _EXPOSED
        if table is EXPOSURES
        else f"r.received_at > b.from_block - {AHEAD} AND r.received_at <= b.received_to"
    )
    return f"""
SELECT b.number, {", ".join(columns)} FROM {SCHEMA}.{table.name} AS r
JOIN (VALUES {", ".join(numbers)}) AS b (number, experiment_id, from_block, to_block, received_to)
  ON b.experiment_id = r.experiment_id
WHERE {within}
"""


def _differing(table: Derived) -> str:
    keys, values = _values(table)
    columns = ", ".join(f"r.{name}" for name in ("number", *keys, *values))
    within, exposure = (_EXPOSED, "") if table is EXPOSURES else (_OUTCOME, _EXPOSURE)
    served, computed = (
        f"SELECT {columns} FROM {side}_{table.name} AS r"
        f" JOIN compared AS b ON b.number = r.number {exposure} WHERE {within}"
        for side in ("served", "new")
    )
    same = " AND ".join(f"s.{key} = c.{key}" for key in ("number", *keys))
    unlike = " OR ".join(f"s.{name} IS DISTINCT FROM c.{name}" for name in values)
    return f"""
SELECT coalesce(s.number, c.number) AS number, coalesce(s.unit, c.unit) AS unit
FROM ({served}) AS s FULL JOIN ({computed}) AS c ON {same}
WHERE s.number IS NULL OR c.number IS NULL OR {unlike}
"""


_DIFFERING_UNITS = Step(
    name="differing_units",
    sql=f"""
SELECT DISTINCT number, unit FROM ({" UNION ALL ".join(map(_differing, _COMPARED))}) AS units
""",
)
