"""The comparison: experiments recomputed from the log, with their served rows.

Both sides sum digests of their rows by table and hour, so that no row leaves its engine where all
are equal. What differs is named by its hour; an experiment that differs is swapped in whole.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Column, Connection, LargeBinary, Table, text

from storage.pipeline.cursors import read_cursors
from storage.pipeline.derived import (
    AMOUNTS,
    BLOCK_NAMES,
    BLOCK_UNITS,
    CONVERSIONS,
    EXPOSURES,
    SIGHTINGS,
    STRATA,
    Derived,
)
from storage.pipeline.engines.copying import copy_into_store, copy_rows
from storage.pipeline.engines.day_engine import DayEngine
from storage.pipeline.engines.engine import Columns
from storage.pipeline.engines.postgres_engine import POSTGRESQL
from storage.pipeline.experiments import PipelineExperiment
from storage.pipeline.moments import EARLIEST, Days, block_of, moment_of
from storage.pipeline.steps import Dialect
from storage.pipeline.sums import CELLS, COMPUTED_CELLS, stored_cell
from storage.postgres.engine import SCHEMA
from storage.postgres.samples import sample_grown
from storage.schema.clock import claim_derived_tables
from storage.schema.tables import cells

_HOUR = 3_600_000_000
_TIMELESS = -1


@dataclass(frozen=True, kw_only=True)
class ComparedLife:
    """How far an experiment's rows are compared, in microseconds since the epoch.

    Attributes:
        since: Rows of earlier moments are left out.
        to_block: The block after the last whose rows are compared.
    """

    experiment: PipelineExperiment
    to_block: int
    since: int = EARLIEST

    @property
    def received_to(self) -> int:
        """The last time of receipt that these blocks are read to."""
        return self.to_block + self.experiment.grace

    def is_of(self, days: Days) -> bool:
        """Whether the experiment has read some of these days."""
        return self.experiment.starts_at < days.to_block and self.to_block > days.from_block


def lives_on_days(
    connection: Connection,
    experiments: Sequence[PipelineExperiment],
    days: Days | None,
    *,
    decided: Collection[str] = (),
) -> list[ComparedLife]:
    """Returns how far experiments are compared: as far as they were read.

    Args:
        days: The days whose rows are compared; None for all that was read.
        decided: Those that were decided on the days: their rows are compared from the first on.
    """
    ids = [experiment.experiment_id for experiment in experiments]
    cursors = read_cursors(connection, ids, schema=f"{SCHEMA}.")
    lives: list[ComparedLife] = []
    for experiment in experiments:
        own, first = experiment.experiment_id, block_of(experiment.starts_at)
        to_block = min(cursors.get((own, stage), first) for stage in ("exposures", "conversions"))
        life = ComparedLife(experiment=experiment, to_block=to_block)
        if days is None:
            lives.append(life)
        elif life.is_of(days):
            is_whole = own in decided or experiment.starts_at >= days.from_block
            since = EARLIEST if is_whole else days.from_block
            lives.append(ComparedLife(experiment=experiment, to_block=to_block, since=since))
    return lives


# --- Which rows are compared ----------------------------------------------------------------------

_COMPARED = {
    "number": "int",
    "experiment_id": "text",
    "is_over": "int",
    "since": "bigint",
    "to_block": "bigint",
    "received_to": "bigint",
}
# The block after the last whose cells have closed.
_CLOSED = {"number": "int", "metric": "text", "closed_to": "bigint"}
# A unit that is exposed later has none of its outcomes among these blocks' rows.
_EXPOSED_BEFORE = """
r.received_at <= x.received_to AND NOT EXISTS (
    SELECT 1 FROM {exposures} AS p WHERE {own} AND p.unit = r.unit AND p.block >= x.to_block
)
"""
_IN_BLOCKS = "r.block < x.to_block"
# By table the condition that a row `r` of either side is compared for the experiment `x`. Where
# `is_over` is 1, only the rows that evidence reads are stored. An outcome of a person who was
# forgotten is dated to the closing of its cell: later than all that was read, it is left out.
_WITHIN: dict[Derived, str] = {
    EXPOSURES: f"""
{_IN_BLOCKS} AND (x.is_over = 0 OR (x.number, r.unit) IN (
    SELECT c.number, p.unit FROM {{sightings}} AS p JOIN compared AS c ON {{same}}
    WHERE p.sighted_at <= c.received_to
))
""",
    # A stratum without exposures is compared: nobody else knows of it.
    STRATA: """
x.is_over = 0 AND NOT EXISTS (
    SELECT 1 FROM (
        SELECT c.number, p.stratum, min(p.block) AS first_block
        FROM {exposures} AS p JOIN compared AS c ON {same} GROUP BY c.number, p.stratum
    ) AS f
    WHERE f.number = x.number AND f.stratum = r.stratum AND f.first_block >= x.to_block
)
""",
    SIGHTINGS: "r.sighted_at <= x.received_to",
    BLOCK_UNITS: _IN_BLOCKS,
    BLOCK_NAMES: _IN_BLOCKS,
    # A late outcome names the block of its exposure.
    CONVERSIONS: f"""
(x.is_over = 0 OR r.late = 1) AND coalesce(r.block, 0) < x.to_block AND {_EXPOSED_BEFORE}
""",
    AMOUNTS: f"x.is_over = 0 AND {_EXPOSED_BEFORE}",
}
# The same of cells, which engines hold otherwise than the store.
_CLOSED_CELLS = """
EXISTS (
    SELECT 1 FROM closed_metrics AS m
    WHERE m.number = x.number AND m.metric = r.metric AND r.block < m.closed_to
)
"""
_SERVED_CELLS = f"""
{SCHEMA}.cells AS r JOIN compared AS x ON x.experiment_id = r.experiment_id WHERE {_CLOSED_CELLS}
"""
_COMPUTED_CELLS = f"""
new_cells AS r JOIN compared AS x ON x.number = r.number WHERE {_CLOSED_CELLS}
"""


def _served(table: Derived) -> str:
    """Returns what follows SELECT for the served rows `r` of the compared experiments `x`."""
    within = _WITHIN[table].format(
        exposures=f"{SCHEMA}.exposures",
        sightings=f"{SCHEMA}.sightings",
        own="p.experiment_id = x.experiment_id",
        same="c.experiment_id = p.experiment_id",
    )
    return (
        f"{SCHEMA}.{table.name} AS r JOIN compared AS x ON x.experiment_id = r.experiment_id"
        f" WHERE {within}"
    )


def _computed(table: Derived) -> str:
    """Returns the same of the engine's rows."""
    within = _WITHIN[table].format(
        exposures=EXPOSURES.step,
        sightings=SIGHTINGS.step,
        own="p.number = x.number",
        same="c.number = p.number",
    )
    return f"{table.step} AS r JOIN compared AS x ON x.number = r.number WHERE {within}"


# --- What differs ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DifferingHour:
    """An hour of a table whose rows differ, of an experiment.

    Attributes:
        hour: Its begin, in microseconds since the epoch; None of a table whose rows have no time.
    """

    table: str
    experiment_id: str
    hour: int | None
    served: int
    computed: int

    def is_of(self, days: Days) -> bool:
        """Whether it is an hour of these days."""
        return self.hour is None or days.from_block <= self.hour < days.to_block

    @property
    def sentence(self) -> str:
        """The table, the hour and the rows of both sides, in words."""
        hour = "" if self.hour is None else f" of {moment_of(self.hour):%Y-%m-%d %H:00}"
        computed = "as many" if self.served == self.computed else f"{self.computed:,}"
        others = ", but others" if self.served == self.computed else ""
        return f"{self.table}{hour}: {self.served:,} rows served, raw {computed}{others}"


def compare(
    engine: DayEngine, connection: Connection, lives: Sequence[ComparedLife]
) -> list[DifferingHour]:
    """Compares the rows that an engine has computed with those served, table after table.

    Creates `compared` in the engine and, until the transaction ends, in the store.
    """
    ids = [life.experiment.experiment_id for life in lives]
    over = set(connection.execute(_OVER, {"ids": ids}).scalars())
    rows = [
        (
            life.experiment.number,
            life.experiment.experiment_id,
            int(life.experiment.experiment_id in over),
            life.since,
            life.to_block,
            life.received_to,
        )
        for life in lives
    ]
    closed = [
        (life.experiment.number, metric.name, life.to_block - metric.open_for)
        for life in lives
        for metric in life.experiment.metrics
    ]
    _register(engine, connection, "compared", _COMPARED, rows)
    _register(engine, connection, "closed_metrics", _CLOSED, closed)
    names = {life.experiment.number: life.experiment.experiment_id for life in lives}
    differing: list[DifferingHour] = []
    for table in _WITHIN:
        if table is STRATA:
            continue
        served = connection.execute(text(_sums(table, _served(table), POSTGRESQL, stored=True)))
        computed = engine.rows(_sums(table, _computed(table), engine.dialect))
        differing += _differing(table.name, names, served, computed)
    served = _strata(connection.execute(text(f"{_STRATUM} {_served(STRATA)}")))
    computed = _strata(engine.rows(f"{_STRATUM} {_computed(STRATA)}"))
    differing += _differing(STRATA.name, names, served, computed)
    columns = ", ".join(f"r.{name}" for name in CELLS[1:])
    served = connection.execute(
        text(f"SELECT x.number, {columns} FROM {_SERVED_CELLS} AND r.block >= x.since")
    )
    computed = engine.rows(
        f"SELECT x.number, {COMPUTED_CELLS} FROM {_COMPUTED_CELLS} AND r.block >= x.since"
    )
    sides = _cells(served), _cells(map(stored_cell, computed))
    return [*differing, *_differing(cells.name, names, *sides)]


def _register(
    engine: DayEngine,
    connection: Connection,
    name: str,
    columns: Columns,
    rows: Sequence[tuple[Any, ...]],
) -> None:
    """Makes a small input of the engine and, until the transaction ends, of the store."""
    engine.register(name, columns, rows)
    declared = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    connection.execute(text(f"DROP TABLE IF EXISTS pg_temp.{name}"))
    connection.execute(text(f"CREATE TEMP TABLE {name} ({declared}) ON COMMIT DROP"))
    copy_rows(connection, name, rows)
    connection.execute(text(f"ANALYZE {name}"))


_OVER = text(f"SELECT experiment_id FROM {SCHEMA}.whole_lives WHERE experiment_id = ANY(:ids)")
# The number of an experiment, an hour, how many rows it has, and their digest.
_Sum: TypeAlias = Sequence[Any]


def _differing(
    table: str, names: Mapping[int, str], served: Iterable[_Sum], computed: Iterable[_Sum]
) -> list[DifferingHour]:
    """Returns the hours whose sums are not the same on both sides."""
    sides = [{(row[0], row[1]): tuple(row[2:]) for row in side} for side in (served, computed)]
    return [
        DifferingHour(
            table=table,
            experiment_id=names[number],
            hour=None if hour == _TIMELESS else hour,
            served=int(left[0]),
            computed=int(right[0]),
        )
        for number, hour in sorted({*sides[0], *sides[1]})
        if (left := sides[0].get((number, hour), (0, 0)))
        != (right := sides[1].get((number, hour), (0, 0)))
    ]


# Columns of few values. Rows are counted by them, so that each value becomes a text once.
_FEW = frozenset(
    ("block", "arm", "as_drawn", "late", "metric", "stratum", "commit_sha", "kind", "event")
)


def _sums(table: Derived, rows: str, dialect: Dialect, *, stored: bool = False) -> str:
    """Returns SQL for number, hour, count and digest of rows by hour; hex bytes unless `stored`."""
    few = [each for each in table.columns if each.name in _FEW]
    many = [each for each in table.columns if each.name not in _FEW]
    moment = f"r.{table.moment}"
    hour, since = f"{moment} - {moment} % {_HOUR}", f" AND {moment} >= x.since"
    read = ", ".join(
        f"encode(r.{each.name}, 'hex') AS {each.name}"
        if stored and isinstance(each.type, LargeBinary)
        else f"r.{each.name}"
        for each in table.columns
    )

    def words(names: Iterable[Column[object]]) -> str:
        return ", ' ', ".join(
            f"CASE WHEN {each.name} IS NULL THEN '-' ELSE concat({each.name}, '') END"
            if each.nullable
            else each.name
            for each in names
        )

    groups = "".join(f", {each.name}" for each in few)
    of_group = dialect.row_digest.format(words=f"concat({words(few)}, ' ', units, ' ', digests)")
    of_row = dialect.row_digest.format(words=f"concat({words(many)})") if many else "0"
    return f"""
SELECT number, hour, sum(units), sum({of_group})
FROM (
    SELECT number, hour{groups}, count(*) AS units, sum({of_row}) AS digests
    FROM (SELECT x.number, {hour} AS hour, {read} FROM {rows}{since}) AS r
    GROUP BY number, hour{groups}
) AS counted
GROUP BY number, hour
"""


# Any commit may stand for a stratum: which does is as the first run chose.
_STRATUM = "SELECT x.number, r.stratum, r.lineage, r.flags FROM"


def _strata(rows: Iterable[Sequence[Any]]) -> Iterator[_Sum]:
    """Yields the strata of each experiment, which are few, in the place of their digest."""
    strata = defaultdict[int, set[tuple[Any, ...]]](set)
    for number, *names, flags in rows:
        # Engines hold JSON as a text, spelled as each likes.
        values = json.loads(flags) if isinstance(flags, str) else flags
        strata[number].add((*names, json.dumps(values, sort_keys=True)))
    for number, of_experiment in strata.items():
        yield number, _TIMELESS, len(of_experiment), of_experiment


def _cells(rows: Iterable[Sequence[Any]]) -> Iterator[_Sum]:
    """Yields the cells of each hour, which are few, in the place of their digest."""
    hours = defaultdict[tuple[int, int], set[tuple[Any, ...]]](set)
    for number, metric, block, *counts in rows:
        hours[number, block - block % _HOUR].add((metric, block, *counts))
    for (number, hour), of_hour in hours.items():
        yield number, hour, len(of_hour), of_hour


# --- The swap -------------------------------------------------------------------------------------


def swap_in(engine: DayEngine, connection: Connection, ids: Collection[str]) -> None:
    """Serves the rows of compared experiments as the engine has computed them, where they differ.

    Args:
        connection: In a separate reading, whose own tables are filled with the computed rows.
    """
    claim_derived_tables(connection)
    engine.register("swapped", {"experiment_id": "text"}, [(each,) for each in ids])
    swapped = "x.experiment_id IN (SELECT experiment_id FROM swapped)"
    for table in _WITHIN:
        source = f"{_computed(table)} AND {swapped}"
        copied = copy_into_store(engine, connection, f"pg_temp.{table.name}", table.table, source)
        sample_grown(connection, f"pg_temp.{table.name}", copied)
        _swap(connection, table.table, _served(table), ids)
    rows = engine.rows(
        f"SELECT x.experiment_id, {COMPUTED_CELLS} FROM {_COMPUTED_CELLS} AND {swapped}"
    )
    copy_rows(connection, f"pg_temp.cells ({', '.join(CELLS)})", map(stored_cell, rows))
    _swap(connection, cells, _SERVED_CELLS, ids)


def _swap(connection: Connection, table: Table, served: str, ids: Collection[str]) -> None:
    """Deletes the served rows that are not computed, and stores those that are not served so."""
    keys = [column.name for column in table.primary_key]
    names = ", ".join(column.name for column in table.columns)
    # Which commit stands for a stratum stays as the first run chose.
    kept = {*keys, "commit_sha"} if table.name == STRATA.name else {*keys}
    others = [column.name for column in table.columns if column.name not in kept]
    changes = (
        f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in others)}"
        f" WHERE ({', '.join(f't.{name}' for name in others)})"
        f" IS DISTINCT FROM ({', '.join(f'excluded.{name}' for name in others)})"
    )

    def same(left: str, right: str) -> str:
        return " AND ".join(f"{left}.{key} = {right}.{key}" for key in keys)

    connection.execute(
        text(
            f"DELETE FROM {SCHEMA}.{table.name} AS t USING (SELECT r.* FROM {served}) AS s"
            f" WHERE {same('t', 's')} AND t.experiment_id = ANY(:ids)"
            f" AND NOT EXISTS (SELECT FROM pg_temp.{table.name} AS c WHERE {same('c', 't')})"
        ),
        {"ids": list(ids)},
    )
    stored = connection.execute(
        text(
            f"INSERT INTO {SCHEMA}.{table.name} AS t ({names})"
            f" SELECT {names} FROM pg_temp.{table.name}"
            f" ON CONFLICT ({', '.join(keys)}) DO {changes}"
        )
    )
    sample_grown(connection, f"{SCHEMA}.{table.name}", stored.rowcount)
