"""Derived tables: how the rows of a step get into the table that keeps them.

A table is declared once, in `storage.schema.tables`: its columns have the names and the units of
the step that fills it. How a row is inserted in PostgreSQL or copied from another engine, and how
the rows of who was forgotten are read again, is made of that declaration.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Column, Table

from storage.pipeline.engines.engine import Columns
from storage.schema.tables import (
    amounts,
    block_names,
    block_units,
    conversions,
    exposures,
    sightings,
    strata,
)

# Names of the store's types in an engine's input.
_INPUTS = {"SMALLINT": "int", "BIGINT": "bigint"}


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A table that a step of the text fills.

    A step may compute a row that an earlier run stored: an outcome that is delivered again, a unit
    that is sighted again. Which row wins does not depend on the order in which they are read.

    Attributes:
        table: The table; the step is called `new_` and its name.
        moment: The column of when a row came to be; None where a row has no time.
        evidence: The condition on a row `r` of the step that evidence is read from it.
    """

    table: Table
    moment: str | None = "block"
    keep: str = "ON CONFLICT DO NOTHING"
    evidence: str = "1 = 1"

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    @property
    def step(self) -> str:
        """The name of the step that fills it."""
        return f"new_{self.name}"

    @property
    def columns(self) -> Sequence[Column[object]]:
        """Its columns beside the experiment's id."""
        return [column for column in self.table.columns if column.name != "experiment_id"]

    @property
    def key(self) -> str:
        """The names of the columns that tell a row from all others."""
        return ", ".join(column.name for column in self.table.primary_key)

    @property
    def insert(self) -> str:
        """A statement of PostgreSQL that adds the rows of the step."""
        names = ", ".join(column.name for column in self.columns)
        values = ", ".join(f"r.{column.name}" for column in self.columns)
        # An insert in the order of the key takes a third of the time of any other.
        return f"""
INSERT INTO {self.name} (experiment_id, {names})
SELECT s.experiment AS experiment_id, {values}
FROM {self.step} AS r JOIN scope AS s ON s.number = r.number
ORDER BY {self.key}
{self.keep}
"""

    @property
    def stored(self) -> str:
        """A statement of PostgreSQL for the rows that are stored."""
        return f"SELECT p.experiment_id AS experiment, p.* FROM {self.name} AS p"

    @property
    def inputs(self) -> Columns:
        """Its columns where rows are an input of an engine."""
        return {column.name: _INPUTS.get(str(column.type), "text") for column in self.columns}


EXPOSURES = Derived(
    table=exposures,
    # Evidence asks of an exposure alone whether a unit that was sighted is exposed as well.
    evidence="(r.number, r.unit) IN (SELECT number, unit FROM new_sightings)",
)
STRATA = Derived(table=strata, moment=None)
SIGHTINGS = Derived(
    table=sightings,
    moment="sighted_at",
    keep="""
ON CONFLICT (experiment_id, kind, unit) DO UPDATE
SET sighted_at = excluded.sighted_at, arm = excluded.arm, event = excluded.event
WHERE (excluded.sighted_at, coalesce(excluded.arm, 2))
    < (sightings.sighted_at, coalesce(sightings.arm, 2))
""",
)
BLOCK_UNITS = Derived(table=block_units)
BLOCK_NAMES = Derived(table=block_names)
CONVERSIONS = Derived(
    table=conversions,
    moment="received_at",
    keep="""
ON CONFLICT (experiment_id, metric, unit) DO UPDATE
SET received_at = least(conversions.received_at, excluded.received_at),
    late = least(conversions.late, excluded.late),
    block = CASE WHEN conversions.late + excluded.late = 2 THEN excluded.block END,
    arm = CASE WHEN conversions.late + excluded.late = 2 THEN excluded.arm END,
    stratum = CASE WHEN conversions.late + excluded.late = 2 THEN excluded.stratum END
""",
    evidence="r.late = 1",
)
AMOUNTS = Derived(
    table=amounts,
    moment="received_at",
    keep="""
ON CONFLICT (experiment_id, metric, unit, event_key) DO UPDATE
SET received_at = excluded.received_at, value = excluded.value
WHERE (excluded.received_at, excluded.value) < (amounts.received_at, amounts.value)
""",
    evidence="1 = 0",
)
# These tables have a row for each unit.
UNIT_TABLES = (EXPOSURES, SIGHTINGS, CONVERSIONS, AMOUNTS)
# Engines copy all tables but cells, whose sums Python makes of whole numbers.
COPIED_TABLES = (*UNIT_TABLES, STRATA, BLOCK_UNITS, BLOCK_NAMES)
