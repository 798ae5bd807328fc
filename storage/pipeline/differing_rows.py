"""Differing rows: an experiment's served rows against an engine's computed ones, row for row.

Both sides are compared inside the engine, so that a few rows alone ever come to Python.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, text

from storage.log.parquet import Batches
from storage.log.reader import SealedLog
from storage.pipeline.engines.engine import DayEngine
from storage.pipeline.engines.postgres_engine import epoch_microseconds
from storage.pipeline.experiments import PipelineExperiment
from storage.pipeline.moments import moment_of
from storage.pipeline.steps import ARMS, BLOCK, SIGHTING_KINDS, Step
from storage.postgres.engine import SCHEMA

# Of each kind; their number tells of the others.
MOST = 1000
# Of both sides, grouped at a time: the memory that a comparison needs does not grow with the rows.
PART_ROWS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class DifferingRow:
    """The values of a key on both sides.

    Attributes:
        kind: `exposure`, `sighting`, `conversion`, `amounts` or `cell`.
        key: By which a row is known within its kind.
        served: The other columns as they are served; of amounts all values, in order. None where
            there is no such row.
        computed: The same as computed from the log.
    """

    kind: str
    key: tuple[Any, ...]
    served: tuple[Any, ...] | None
    computed: tuple[Any, ...] | None


@dataclass(frozen=True, kw_only=True)
class DifferingRows:
    """How many rows of a kind differ, and the first of them in the order of their keys."""

    count: int
    rows: Sequence[DifferingRow]


@dataclass(frozen=True, kw_only=True)
class _Side:
    """Until when rows are compared, in SQL.

    Attributes:
        experiment: The condition that a row of the store is of the experiment.
        until: The last moment.
        last_block: The last block of exposure that had closed by then.
        cell_closed: The condition that a cell had closed by then, on its metric and block.
        is_whole_life: Whether of the units those rows alone are stored that evidence reads: the
            exposures of units that were sighted, and outcomes that are late.
    """

    experiment: str
    until: int
    last_block: int
    cell_closed: str
    is_whole_life: bool

    def sighted(self, sightings: str) -> str:
        """Returns the condition on exposures `e` that their rows are stored."""
        if not self.is_whole_life:
            return ""
        return f" AND EXISTS (SELECT 1 FROM ({sightings}) AS s WHERE s.unit = e.unit)"

    @property
    def due(self) -> str:
        """The condition on outcomes `o`: those of exposures that close later are left out."""
        if self.is_whole_life:
            return f"{{late}} AND o.received <= {self.until} AND {{block}} <= {self.last_block}"
        return f"""
  o.received <= {self.until} AND NOT EXISTS (
      SELECT 1 FROM {{exposures}} AS x WHERE x.unit = o.unit AND x.block > {self.last_block}
  )"""


@dataclass(frozen=True, kw_only=True)
class _Table:
    """One kind of row and how each side is read.

    Attributes:
        kind: Its name.
        keys: The columns by which a row is known; there may be several amounts of one key.
        members: The others.
        spread: A column of whole numbers, by which many rows fall into parts.
        served: SQL of PostgreSQL.
        computed: SQL of the engine; of PostgreSQL where the evidence rows hold it.
    """

    kind: str
    keys: Mapping[str, Any]
    members: Mapping[str, Any]
    spread: str
    served: Callable[[_Side], str]
    computed: Callable[[_Side], str]
    computed_in_store: bool = False

    @property
    def columns(self) -> Mapping[str, Any]:
        return {**self.keys, **self.members}


_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()


def _named(column: str, names: Mapping[int, str]) -> str:
    cases = " ".join(f"WHEN {number} THEN {literal(name)}" for number, name in names.items())
    return f"CASE {column} {cases} END"


_SERVED_EXPOSURES = f"""(
    SELECT unit, {epoch_microseconds("block")} AS block FROM {SCHEMA}.exposures
    WHERE {{experiment}}
)"""


def _served_outcomes(columns: str, table: str, side: _Side) -> str:
    due = side.due.format(
        exposures=_SERVED_EXPOSURES.format(experiment=side.experiment),
        late="o.late",
        block=epoch_microseconds("o.block"),
    )
    return f"""
SELECT {columns} FROM (
    SELECT *, {epoch_microseconds("received_at")} AS received
    FROM {SCHEMA}.{table} WHERE {side.experiment}
) AS o
WHERE {due}
"""


def _computed_outcomes(columns: str, table: str, side: _Side) -> str:
    due = side.due.format(exposures="new_exposures", late="o.late = 1", block="o.block")
    return f"SELECT {columns} FROM {table} AS o WHERE {due}"


_COUNTS = dict.fromkeys(("n1", "x1", "n0", "x0"), _WHOLE)
_SUMS = dict.fromkeys(("y1", "yy1", "y0", "yy0"), _REAL)


def _cells(schema: str, side: _Side) -> str:
    return f"""
SELECT * FROM (
    SELECT metric, {epoch_microseconds("block")} AS block, stratum, {", ".join(_COUNTS | _SUMS)}
    FROM {schema}.cells WHERE {side.experiment}
) AS c
WHERE {side.cell_closed}
"""


def _served_sightings(side: _Side) -> str:
    return f"""
SELECT kind, unit, {epoch_microseconds("at")}
FROM {SCHEMA}.sightings WHERE {side.experiment} AND {epoch_microseconds("at")} <= {side.until}
"""


def _computed_sightings(side: _Side) -> str:
    return f"""
SELECT {_named("kind", SIGHTING_KINDS)} AS kind, unit, sighted_at
FROM new_sightings WHERE sighted_at <= {side.until}
"""


_TABLES = (
    _Table(
        kind="exposure",
        keys={"unit": _TEXT},
        members={
            "exposed_at": _WHOLE,
            "arm": _TEXT,
            "stratum": _TEXT,
            "commit_sha": _TEXT,
            "pseudonym": _TEXT,
        },
        spread="exposed_at",
        served=lambda side: (
            f"""
SELECT unit, {epoch_microseconds("exposed_at")}, arm, stratum, commit_sha, encode(pseudonym, 'hex')
FROM {SCHEMA}.exposures AS e
WHERE {side.experiment} AND {epoch_microseconds("block")} <= {side.last_block}
{side.sighted(_served_sightings(side))}
"""
        ),
        computed=lambda side: (
            f"""
SELECT unit, exposed_at, {_named("arm", dict(enumerate(ARMS)))} AS arm, stratum, commit_sha,
    pseudonym
FROM new_exposures AS e
WHERE block <= {side.last_block}{side.sighted(_computed_sightings(side))}
"""
        ),
    ),
    _Table(
        kind="sighting",
        keys={"kind": _TEXT, "unit": _TEXT},
        members={"sighted_at": _WHOLE},
        spread="sighted_at",
        served=_served_sightings,
        computed=_computed_sightings,
    ),
    _Table(
        kind="conversion",
        keys={"metric": _TEXT, "unit": _TEXT},
        members={"received": _WHOLE},
        spread="received",
        served=lambda side: _served_outcomes("metric, unit, received", "conversions", side),
        computed=lambda side: _computed_outcomes("metric, unit, received", "new_conversions", side),
    ),
    _Table(
        # Without the keys of single amounts, which are the pipeline's own.
        kind="amounts",
        keys={"metric": _TEXT, "unit": _TEXT},
        members={"value": _WHOLE},
        spread="value",
        served=lambda side: _served_outcomes("metric, unit, value", "amounts", side),
        computed=lambda side: _computed_outcomes("metric, unit, value", "new_amounts", side),
    ),
    _Table(
        kind="cell",
        keys={"metric": _TEXT, "block": _WHOLE, "stratum": _TEXT},
        members={**_COUNTS, **_SUMS},
        spread="block",
        served=lambda side: _cells(SCHEMA, side),
        # Their sums are doubles that Python makes of whole numbers.
        computed=lambda side: _cells("pg_temp", side),
        computed_in_store=True,
    ),
)


def differing_rows(
    engine: DayEngine, log: SealedLog, experiment: PipelineExperiment, *, until: int
) -> Iterator[DifferingRows]:
    """Compares an experiment's served rows with the computed ones, table after table.

    Args:
        engine: Which computed the whole life of this one experiment.
        log: On whose connection the evidence rows of that computation lie in temporary tables
            before the served ones.
        until: The look, in microseconds since the epoch: rows that close later are left out.

    Yields:
        The rows that differ, one entry a kind.
    """
    side = _side(experiment, until=until, is_whole_life=_is_whole_life(log.connection, experiment))
    for table in _TABLES:
        if side.is_whole_life and table.kind == "amounts":
            continue
        named = f"({', '.join(table.columns)})"
        with log.reader.cursor(log.snapshot) as cursor:
            cursor.execute(f"SELECT * FROM ({table.served(side)}) AS t {named}")
            engine.copy(f"served_{table.kind}", cursor.fetch_record_batch())
        computed = table.computed(side)
        if table.computed_in_store:
            name = f"computed_{table.kind}"
            engine.copy(name, _stored(log.connection, computed, table.columns))
            computed = f"SELECT * FROM {name}"
        yield _compared(
            engine, table, served=f"SELECT * FROM served_{table.kind}", computed=computed
        )


_WHOLE_LIFE = text(f"""
SELECT EXISTS (SELECT FROM {SCHEMA}.whole_lives WHERE experiment_id = :id)
""")


def _is_whole_life(connection: Connection, experiment: PipelineExperiment) -> bool:
    return connection.execute(_WHOLE_LIFE, {"id": experiment.experiment_id}).scalar_one()


def _side(experiment: PipelineExperiment, *, until: int, is_whole_life: bool) -> _Side:
    open_for = {metric.name: metric.open_for for metric in experiment.metrics}
    cases = " ".join(f"WHEN {literal(name)} THEN {span}" for name, span in open_for.items())
    last_block = until - BLOCK - experiment.grace
    return _Side(
        experiment=f"experiment_id = {literal(experiment.experiment_id)}",
        until=until,
        last_block=last_block,
        cell_closed=f"block + CASE metric {cases} ELSE 0 END <= {last_block}",
        is_whole_life=is_whole_life,
    )


def _stored(connection: Connection, sql: str, columns: Mapping[str, Any]) -> Batches:
    """Returns the few rows of a statement that only this connection can read."""
    rows = connection.execute(text(sql.replace(":", r"\:"))).all()
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [
        pa.array(values, type=kind)
        for values, kind in zip(by_column, columns.values(), strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=list(columns))


def literal(value: str) -> str:
    """Returns a text as a constant of SQL."""
    return "'" + value.replace("'", "''") + "'"


def _compared(engine: DayEngine, table: _Table, *, served: str, computed: str) -> DifferingRows:
    names, keys = ", ".join(table.columns), ", ".join(table.keys)
    engine.define(
        "both_sides",
        f"SELECT {names}, 1 AS side FROM ({served})"
        f" UNION ALL SELECT {names}, -1 AS side FROM ({computed})",
    )
    parts = _find_unequal(engine, table)
    engine.run(Step(name="differing_keys", sql=f"SELECT DISTINCT {keys} FROM ({parts}) AS unequal"))
    ((count,),) = engine.rows("SELECT count(*) FROM differing_keys")
    sides_of_key: dict[tuple[Any, ...], dict[int, tuple[Any, ...]]] = {}
    if count:
        shown = f"SELECT * FROM differing_keys ORDER BY {keys} LIMIT {MOST}"
        for *row, side in engine.rows(
            f"SELECT {names}, side FROM both_sides JOIN ({shown}) AS shown USING ({keys})"
            f" ORDER BY {keys}, {', '.join(table.members)}"
        ):
            values = [
                _as_stored(name, value) for name, value in zip(table.columns, row, strict=True)
            ]
            sides = sides_of_key.setdefault(tuple(values[: len(table.keys)]), {})
            sides[side] = (*sides.get(side, ()), *values[len(table.keys) :])
    return DifferingRows(
        count=count,
        rows=[
            DifferingRow(kind=table.kind, key=key, served=of.get(1), computed=of.get(-1))
            for key, of in sides_of_key.items()
        ],
    )


def _find_unequal(engine: DayEngine, table: _Table) -> str:
    """Materializes the keys of rows that one side has more often, and returns SQL that reads them.

    A row is in the same part on both sides, or it differs anyway.
    """
    names, keys = ", ".join(table.columns), ", ".join(table.keys)
    ((rows,),) = engine.rows("SELECT count(*) FROM both_sides")
    parts = rows // PART_ROWS + 1
    # Times are whole seconds or blocks where history says no more.
    while gcd(parts, BLOCK) > 1:
        parts += 1
    part_of_row = f"abs(coalesce({table.spread}, 0)) % {parts}"
    for part in range(parts):
        engine.run(
            Step(
                name=f"unequal_{part}",
                sql=f"SELECT {keys} FROM both_sides WHERE {part_of_row} = {part}"
                f" GROUP BY {names} HAVING sum(side) <> 0",
            )
        )
    return " UNION ALL ".join(f"SELECT * FROM unequal_{part}" for part in range(parts))


_TIMES = frozenset(("exposed_at", "sighted_at", "received", "block"))


def _as_stored(name: str, value: Any) -> Any:  # noqa: ANN401 - a value of any column
    """Returns a value as the store has it."""
    if value is None:
        return None
    if name in _TIMES:
        return moment_of(value)
    return bytes.fromhex(value) if name == "pseudonym" else value
