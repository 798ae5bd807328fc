"""Differing units: the engine lists those whose served rows are unlike the computed rows.

Copying the rows of all units, either way, costs more than computing them. So both sides sum
digests of their rows by the hour, and rows are read of those hours whose sums differ: none where a
day is whole.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from psycopg import sql
from sqlalchemy import Column, Connection, LargeBinary, text

from storage.pipeline.comparison import Reach, over_when_first_read
from storage.pipeline.derived import AMOUNTS, CONVERSIONS, EXPOSURES, Derived
from storage.pipeline.engines.copying import copy_rows
from storage.pipeline.engines.engine import Batches, DayEngine
from storage.pipeline.engines.postgres_engine import POSTGRESQL
from storage.pipeline.steps import AHEAD, Dialect, Step
from storage.postgres.engine import SCHEMA

# Which rows `r` are compared within the reach `b` of their experiment. More rows than
# `comparison.WITHIN` asks for do no harm, as that decides which of them differ.
_WITHIN = {
    table: "r.block >= b.from_block AND r.block < b.to_block"
    if table is EXPOSURES
    else f"r.received_at > b.from_block - {AHEAD} AND r.received_at <= b.received_to"
    for table in (EXPOSURES, CONVERSIONS, AMOUNTS)
}
_COMPARED = {
    "number": "int",
    "experiment_id": "text",
    "from_block": "bigint",
    "to_block": "bigint",
    "received_to": "bigint",
}
_HOUR = 3_600_000_000
# Columns of few values. Rows are counted by them, so that each value becomes a text once.
_FEW = frozenset(("block", "arm", "as_drawn", "late", "metric", "stratum", "commit_sha"))


def find_differing_units(
    engine: DayEngine,
    read: Callable[[str], AbstractContextManager[Batches]],
    connection: Connection,
    reaches: Sequence[Reach],
) -> None:
    """Creates `differing_units` in the engine and, until the transaction ends, in the store.

    Args:
        read: Reads a statement of the store, as the connection's transaction sees the served rows.
    """
    ids = [reach.experiment.experiment_id for reach in reaches]
    over = over_when_first_read(connection, ids)
    compared = [
        (
            own.number,
            own.experiment_id,
            each.from_block or 0,
            each.to_block,
            each.read_to + own.grace,
        )
        for each in reaches
        if (own := each.experiment).experiment_id not in over
    ]
    engine.register("compared", _COMPARED, compared)
    for table in _WITHIN:
        served = connection.execute(text(_sums(table, _served(table, compared), POSTGRESQL)))
        sums = {tuple(row) for row in served} ^ set(
            map(tuple, engine.rows(_sums(table, _computed(table), engine.dialect)))
        )
        hours = {(number, hour) for number, hour, _ in sums}
        engine.register(f"hours_of_{table.name}", {"number": "int", "hour": "bigint"}, hours)
        within = ", ".join(map(str, hours)) or "(NULL::int, NULL::bigint)"
        of_hours = f" AND (b.number, {_hour(table)}) IN (VALUES {within})"
        with read(_served(table, compared) + of_hours) as rows:
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
    differing = engine.rows(
        "SELECT b.experiment_id, d.unit"
        " FROM differing_units AS d JOIN compared AS b ON b.number = d.number"
    )
    copy_rows(connection, "differing_units (experiment_id, unit)", map(tuple, differing))
    connection.execute(text("ANALYZE differing_units"))


def _served(table: Derived, compared: Iterable[Sequence[Any]]) -> str:
    """Returns a statement of PostgreSQL for the served rows of the experiments, in their reach."""
    columns = [
        f"encode(r.{each.name}, 'hex') AS {each.name}"
        if isinstance(each.type, LargeBinary)
        else f"r.{each.name}"
        for each in table.columns
    ]
    reaches = [sql.SQL("({})").format(sql.SQL(", ").join(row)).as_string() for row in compared]
    return f"""
SELECT b.number, {", ".join(columns)} FROM {SCHEMA}.{table.name} AS r
JOIN (VALUES {", ".join(reaches) or "(0, NULL, 0, 0, 0)"}) AS b ({", ".join(_COMPARED)})
  ON b.experiment_id = r.experiment_id
WHERE {_WITHIN[table]}
"""


def _hour(table: Derived) -> str:
    return f"r.{table.moment} - r.{table.moment} % {_HOUR}"


def _computed(table: Derived) -> str:
    return f"""
SELECT r.* FROM {table.step} AS r JOIN compared AS b ON b.number = r.number WHERE {_WITHIN[table]}
"""


def _sums(table: Derived, rows: str, dialect: Dialect) -> str:
    """Returns a statement for the sum of each hour of an experiment's rows."""
    few = [each for each in table.columns if each.name in _FEW]
    many = [each for each in table.columns if each.name not in _FEW]

    def words(columns: Iterable[Column[object]]) -> str:
        return ", ' ', ".join(
            f"CASE WHEN {each.name} IS NULL THEN '-' ELSE concat({each.name}, '') END"
            if each.nullable
            else each.name
            for each in columns
        )

    names = ", ".join(each.name for each in few)
    of_group = dialect.row_digest.format(words=f"concat({words(few)}, ' ', units, ' ', digests)")
    of_row = dialect.row_digest.format(words=f"concat({words(many)})")
    return f"""
SELECT number, hour, sum({of_group})
FROM (
    SELECT number, {_hour(table)} AS hour, {names}, count(*) AS units,
        sum({of_row}) AS digests
    FROM ({rows}) AS r
    GROUP BY number, {_hour(table)}, {names}
) AS counted
GROUP BY number, hour
"""


def _differing(table: Derived) -> str:
    computed = f"""
SELECT r.* FROM ({_computed(table)}) AS r
JOIN hours_of_{table.name} AS h ON h.number = r.number AND h.hour = {_hour(table)}
"""
    same = " AND ".join(
        f"s.{each.name} = c.{each.name}" for each in table.columns if each.primary_key
    )
    unlike = " OR ".join(f"s.{each.name} IS DISTINCT FROM c.{each.name}" for each in table.columns)
    return f"""
SELECT coalesce(s.number, c.number) AS number, coalesce(s.unit, c.unit) AS unit
FROM served_{table.name} AS s FULL JOIN ({computed}) AS c
  ON s.number = c.number AND {same}
WHERE s.number IS NULL OR c.number IS NULL OR {unlike}
"""


_DIFFERING_UNITS = Step(
    name="differing_units",
    sql=f"""
SELECT DISTINCT number, unit FROM ({" UNION ALL ".join(map(_differing, _WITHIN))}) AS units
""",
)
