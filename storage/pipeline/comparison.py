"""The comparison: recomputed rows of experiments, in tables aside, with the served ones.

Whoever compares says how far: an audit, a day and a swap of all tables read different parts of an
experiment's life, by the same conditions.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, text

from storage.pipeline.cursors import read_cursors
from storage.pipeline.experiments import PipelineExperiment
from storage.pipeline.moments import Days, block_of
from storage.postgres.engine import SCHEMA
from storage.postgres.samples import sample_grown
from storage.schema.clock import claim_derived_tables
from storage.schema.tables import in_words, metadata

# The report names so many rows of each table, and counts all of them.
MOST = 1000


# --- How far --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far an experiment's rows are compared.

    Attributes:
        from_block: The first block; None where the experiment begins.
    """

    experiment: PipelineExperiment
    to_block: int
    read_to: int
    from_block: int | None = None

    def closed_to(self, open_for: int) -> int:
        """Returns the block after the last whose cells are compared."""
        return min(self.to_block, self.read_to - open_for)


# The epoch stands for the beginning of an experiment.
_BEFORE_ALL = 0

_CREATE_REACHES = text("""
CREATE TEMP TABLE reaches ON COMMIT DROP AS
SELECT * FROM unnest(
    CAST(:experiments AS text[]), CAST(:over AS boolean[]),
    CAST(:from_block AS bigint[]), CAST(:to_block AS bigint[]),
    CAST(:known_after AS bigint[]), CAST(:known_to AS bigint[]),
    CAST(:received_to AS bigint[])
) AS b (experiment_id, is_over, from_block, to_block, known_after, known_to, received_to)
""")
_CREATE_CLOSED = text("""
CREATE TEMP TABLE closed_metrics ON COMMIT DROP AS
SELECT * FROM unnest(
    CAST(:experiments AS text[]), CAST(:metrics AS text[]), CAST(:closed_to AS bigint[])
) AS m (experiment_id, metric, closed_to)
""")


def create_reaches(
    connection: Connection, reaches: Sequence[Reach], *, over: Collection[str] = ()
) -> None:
    """Creates `reaches` and `closed_metrics`, which last until the transaction ends.

    Args:
        over: The experiments of whose units those rows alone are stored that evidence is read from.
    """
    ids = [reach.experiment.experiment_id for reach in reaches]
    firsts = [_BEFORE_ALL if each.from_block is None else each.from_block for each in reaches]
    graces = [each.experiment.grace for each in reaches]
    known_after = [first and first + grace for first, grace in zip(firsts, graces, strict=True)]
    connection.execute(
        _CREATE_REACHES,
        {
            "experiments": ids,
            "over": [experiment_id in over for experiment_id in ids],
            "from_block": firsts,
            "to_block": [each.to_block for each in reaches],
            "known_after": known_after,
            "known_to": [each.to_block + each.experiment.grace for each in reaches],
            "received_to": [each.read_to + each.experiment.grace for each in reaches],
        },
    )
    metrics = [(each, metric) for each in reaches for metric in each.experiment.metrics]
    connection.execute(
        _CREATE_CLOSED,
        {
            "experiments": [each.experiment.experiment_id for each, _ in metrics],
            "metrics": [metric.name for _, metric in metrics],
            "closed_to": [each.closed_to(metric.open_for) for each, metric in metrics],
        },
    )


_IN_BLOCKS = "r.block >= b.from_block AND r.block < b.to_block"
_OF_UNIT = "p.experiment_id = r.experiment_id AND p.unit = r.unit"
_EXPOSED = f"""
r.received_at <= b.received_to AND NOT EXISTS (
    SELECT FROM {{schema}}.exposures AS p WHERE {_OF_UNIT} AND p.block >= b.to_block
) AND (b.from_block = {_BEFORE_ALL} OR EXISTS (
    SELECT FROM {{schema}}.exposures AS p WHERE {_OF_UNIT} AND p.block >= b.from_block
))
"""
# By table the condition that a row `r` is within the reach `b` of its experiment, for the tables of
# either schema. Conditions read the tables before theirs. An outcome of a person who was forgotten
# is dated to the closing of its cell, which may be later than all that was read: it is left out on
# both sides.
WITHIN: dict[str, str] = {
    "sightings": "r.sighted_at > b.known_after AND r.sighted_at <= b.known_to",
    "exposures": f"""
{_IN_BLOCKS} AND (NOT b.is_over OR (r.experiment_id, r.unit) IN (
    SELECT s.experiment_id, s.unit
    FROM {{schema}}.sightings AS s
    JOIN reaches AS o ON o.experiment_id = s.experiment_id AND s.sighted_at <= o.known_to
    WHERE o.is_over
))
""",
    # Exposures within the reach have it, where a row of each unit is stored.
    "strata": f"""
NOT b.is_over AND EXISTS (
    SELECT FROM {{schema}}.exposures AS p
    WHERE p.experiment_id = r.experiment_id AND p.stratum = r.stratum
      AND {_IN_BLOCKS.replace("r.", "p.")}
)
""",
    "block_units": _IN_BLOCKS,
    "block_names": _IN_BLOCKS,
    "conversions": f"""
CASE WHEN b.is_over THEN r.late = 1 AND r.received_at <= b.received_to AND {_IN_BLOCKS}
     ELSE {_EXPOSED} END
""",
    "amounts": f"NOT b.is_over AND {_EXPOSED}",
    "cells": """
r.block >= b.from_block AND EXISTS (
    SELECT FROM closed_metrics AS m
    WHERE m.experiment_id = r.experiment_id AND m.metric = r.metric AND r.block < m.closed_to
)
""",
}
# Names of rows for people.
_ROWS = {
    "exposures": "exposure",
    "strata": "stratum",
    "block_units": "units of a block",
    "block_names": "units of a block by event",
    "sightings": "sighting",
    "conversions": "conversion",
    "amounts": "amount",
    "cells": "cell",
}


def reaches_on_days(
    connection: Connection,
    experiments: Sequence[PipelineExperiment],
    days: Days,
    *,
    decided: Collection[str],
) -> list[Reach]:
    """Returns how far experiments are compared for some days: as far as they were read.

    Args:
        decided: Those of them that were decided on the days: they are compared from their first
            block on.
    """
    ids = [experiment.experiment_id for experiment in experiments]
    cursors = read_cursors(connection, ids, schema=f"{SCHEMA}.")
    reaches: list[Reach] = []
    for experiment in experiments:
        own = experiment.experiment_id
        first = block_of(experiment.starts_at)
        exposed_to = cursors.get((own, "exposures"), first)
        if not (experiment.starts_at < days.to_block and exposed_to > days.from_block):
            continue
        is_whole = own in decided or experiment.starts_at >= days.from_block
        to_block = min(days.to_block, exposed_to)
        longest_open = max(metric.open_for for metric in experiment.metrics)
        reaches.append(
            Reach(
                experiment=experiment,
                from_block=None if is_whole else days.from_block,
                to_block=to_block,
                # No cell of these blocks closes later.
                read_to=min(cursors.get((own, "conversions"), first), to_block + longest_open),
            )
        )
    return reaches


# --- Rows that differ -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DifferingRow:
    """A row that both sides hold otherwise.

    Attributes:
        served: The other columns as they are served; None where there is no such row.
    """

    table: str
    experiment_id: str
    key: tuple[Any, ...]
    served: tuple[Any, ...] | None
    computed: tuple[Any, ...] | None

    @property
    def sentence(self) -> str:
        """The row and both of its sides, in words."""
        sides = f"served {_words(self.served)}, raw {_words(self.computed)}"
        return f"{_ROWS[self.table]} {_words(self.key)}: {sides}"


def _words(value: object) -> str:
    match value:
        case None:
            return "none"
        case tuple():
            return " ".join("-" if part is None else _words(part) for part in value)
        case bytes():
            return value.hex()[:12]
        case datetime():
            return value.isoformat()
        case _:
            return str(value)


@dataclass(frozen=True, kw_only=True)
class DifferingCount:
    """How many rows of a table, of an experiment, differ.

    Attributes:
        missing: How many computed rows are not served.
        surplus: How many served rows are not computed.
    """

    table: str
    experiment_id: str
    missing: int
    surplus: int
    changed: int

    @property
    def total(self) -> int:
        """How many rows differ."""
        return self.missing + self.surplus + self.changed

    @property
    def sentence(self) -> str:
        """The counts in words."""
        return (
            f"{self.experiment_id} {self.table}: {self.missing} missing, {self.surplus} surplus,"
            f" {self.changed} changed"
        )


@dataclass(frozen=True, kw_only=True)
class Differences:
    """The rows that differ: how many, and of each table the first by their keys."""

    counts: Sequence[DifferingCount]
    rows: Sequence[DifferingRow]


_COUNTS = text("""
SELECT experiment_id, count(*) FILTER (WHERE missing) AS missing,
    count(*) FILTER (WHERE surplus) AS surplus,
    count(*) FILTER (WHERE NOT missing AND NOT surplus) AS changed
FROM differing GROUP BY experiment_id ORDER BY experiment_id
""")


def compare(connection: Connection, reaches: Sequence[Reach], *, swap: bool = False) -> Differences:
    """Compares rows aside with the served ones, table after table.

    Of exposures, conversions and amounts, those of `differing_units` alone.
    """
    ids = [reach.experiment.experiment_id for reach in reaches]
    over = over_when_first_read(connection, ids)
    create_reaches(connection, reaches, over=over)
    counts: list[DifferingCount] = []
    rows: list[DifferingRow] = []
    for name in WITHIN:
        table = metadata.tables[name]
        connection.execute(text(_differing(table, any_over=bool(over))))
        differing = connection.execute(_COUNTS).mappings().all()
        counts += [DifferingCount(table=name, **row) for row in differing]
        if differing:
            rows += _first_rows(connection, table)
        if differing and swap:
            claim_derived_tables(connection)
            for statement in _swaps(table):
                swapped = connection.execute(text(statement)).rowcount
                sample_grown(connection, f"{SCHEMA}.{name}", swapped)
        connection.execute(text("DROP TABLE differing"))
    connection.execute(text("DROP TABLE reaches, closed_metrics"))
    return Differences(counts=counts, rows=rows)


_OVER = text(f"""
SELECT experiment_id FROM {SCHEMA}.whole_lives WHERE experiment_id = ANY(:ids)
""")


def over_when_first_read(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Returns those experiments of whose units the rows alone are served that evidence reads."""
    return set(connection.execute(_OVER, {"ids": list(ids)}).scalars())


def _columns(table: Table) -> tuple[list[str], list[str]]:
    """Returns the columns of a table's key, the experiment's id first, and the others."""
    keys = [column.name for column in table.primary_key]
    # Any commit may stand for a stratum: which does is as the first run chose.
    chosen = {"commit_sha"} if table.name == "strata" else set[str]()
    return keys, [column.name for column in table.columns if column.name not in {*keys, *chosen}]


# The engine that computed the rows has already compared all other units.
_DIFFERS = "(r.experiment_id, r.unit) IN (SELECT experiment_id, unit FROM differing_units)"


def _differing(table: Table, *, any_over: bool) -> str:
    """Returns the statement that creates `differing`: rows of one side, or unlike the other's."""
    keys, values = _columns(table)
    within = {schema: WITHIN[table.name].format(schema=schema) for schema in (SCHEMA, "pg_temp")}
    if table.name in ("exposures", "conversions", "amounts"):
        # An alternative would keep PostgreSQL from looking up the few units that differ.
        differs = f"(b.is_over OR {_DIFFERS})" if any_over else _DIFFERS
        within = {schema: f"{differs} AND {condition}" for schema, condition in within.items()}
    elif table.name == "strata":
        # Strata of equal units are named by the served exposures alone.
        within = dict.fromkeys(within, f"({' OR '.join(within.values())})")
    served, computed = (
        f"SELECT r.* FROM {schema}.{table.name} AS r JOIN reaches AS b USING (experiment_id)"
        f" WHERE {condition}"
        for schema, condition in within.items()
    )
    both = [f"coalesce(s.{key}, c.{key}) AS {key}" for key in keys]
    both += [f"s.{name} AS served_{name}, c.{name} AS computed_{name}" for name in values]
    unlike = " OR ".join(f"s.{name} IS DISTINCT FROM c.{name}" for name in values)
    return f"""
CREATE TEMP TABLE differing ON COMMIT DROP AS
SELECT {", ".join(both)}, s.experiment_id IS NULL AS missing, c.experiment_id IS NULL AS surplus
FROM ({served}) AS s FULL JOIN ({computed}) AS c
  ON {" AND ".join(f"s.{key} = c.{key}" for key in keys)}
WHERE s.experiment_id IS NULL OR c.experiment_id IS NULL OR {unlike}
"""


def _swaps(table: Table) -> Sequence[str]:
    """Returns the statements that serve rows of `differing` as they are aside."""
    keys = [column.name for column in table.primary_key]
    of_key = " AND ".join(f"r.{key} = d.{key}" for key in keys)
    columns, of_row = (
        ", ".join(f"{alias}{column.name}" for column in table.columns) for alias in ("", "r.")
    )
    others = ", ".join(
        f"{column.name} = excluded.{column.name}"
        for column in table.columns
        if not column.primary_key
    )
    surplus = f"""
DELETE FROM {SCHEMA}.{table.name} AS r USING differing AS d WHERE d.surplus AND {of_key}
"""
    # A unit stored with a block of another day is missing on its own day.
    missing = f"""
INSERT INTO {SCHEMA}.{table.name} ({columns})
SELECT {of_row} FROM pg_temp.{table.name} AS r JOIN differing AS d ON {of_key}
WHERE NOT d.surplus ON CONFLICT ({", ".join(keys)}) DO UPDATE SET {others}
"""
    return surplus, missing


def _first_rows(connection: Connection, table: Table) -> list[DifferingRow]:
    keys, values = _columns(table)
    read = [f"{in_words(table.c[key], key)} AS {key}" for key in keys]
    read += [
        f"{in_words(table.c[name], f'{side}_{name}')} AS {side}_{name}"
        for name in values
        for side in ("served", "computed")
    ]
    rows = connection.execute(
        text(
            f"SELECT missing, surplus, {', '.join(read)} FROM differing"
            f" ORDER BY {', '.join(f'differing.{key}' for key in keys)} LIMIT {MOST}"
        )
    ).mappings()
    return [
        DifferingRow(
            table=table.name,
            experiment_id=row["experiment_id"],
            key=tuple(row[key] for key in keys[1:]),
            served=None if row["missing"] else tuple(row[f"served_{name}"] for name in values),
            computed=None if row["surplus"] else tuple(row[f"computed_{name}"] for name in values),
        )
        for row in rows
    ]
