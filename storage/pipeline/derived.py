"""Derived tables, each declared once: the step that fills it, its columns, and which row wins.

The text counts in whole microseconds and in numbers of arms; the store keeps times and words. What
stands between the two is here, and made of these declarations: how a row is inserted in PostgreSQL
or copied from another engine, and how the rows of who was forgotten are read again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from storage.pipeline.engines.copying import (
    Array,
    Field,
    as_bytes,
    as_escaped_text,
    as_moments,
    as_plain_text,
)
from storage.pipeline.engines.engine import Columns
from storage.pipeline.engines.postgres_engine import epoch_microseconds, moment
from storage.pipeline.steps import ARMS, SIGHTING_KINDS
from storage.schema.tables import metadata

# --- Kinds of values ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How values of a kind are kept by the store, and computed by the text.

    Attributes:
        input: The type of an input of engines that holds them.
        stored: SQL of PostgreSQL for a value as the store keeps it, of SQL for a computed one.
        computed: The reverse.
        encoded: The same for an input of another engine, where that holds it otherwise.
        copied: SQL of another engine for what is copied into the store.
        as_text: Converts that to the texts that COPY reads.
    """

    input: str
    stored: Callable[[str], str] = str
    computed: Callable[[str], str] = str
    encoded: Callable[[str], str] | None = None
    copied: Callable[[str], str] = str
    as_text: Callable[[Array], Array] = as_plain_text

    def read(self, sql: str, *, encoded: bool) -> str:
        """Returns SQL for a stored value as PostgreSQL's text, or another engine, knows it."""
        return self.encoded(sql) if encoded and self.encoded else self.computed(sql)


def _cases(sql: str, results: Mapping[str, str]) -> str:
    return f"CASE {sql} {' '.join(f'WHEN {key} THEN {to}' for key, to in results.items())} END"


def _named(names: Mapping[int, str]) -> Kind:
    """Returns a kind of which the text has numbers and the store words."""
    words = {str(number): f"'{name}'" for number, name in names.items()}
    numbers = {name: number for number, name in words.items()}
    return Kind(
        input="int",
        stored=lambda sql: _cases(sql, words),
        computed=lambda sql: _cases(sql, numbers),
        copied=lambda sql: _cases(sql, words),
    )


TEXT = Kind(input="text", as_text=as_escaped_text)
JSON = Kind(input="text", stored=lambda sql: f"CAST({sql} AS jsonb)", as_text=as_escaped_text)
MOMENT = Kind(input="bigint", stored=moment, computed=epoch_microseconds, as_text=as_moments)
ARM = _named(dict(enumerate(ARMS)))
SIGHTING = _named(SIGHTING_KINDS)
# Some are sums, of which engines choose different types.
NUMBER = Kind(input="bigint", copied=lambda sql: f"CAST({sql} AS BIGINT)")
FLAG = Kind(
    input="int",
    stored=lambda sql: f"{sql} = 1",
    computed=lambda sql: f"{sql}::integer",
    copied=lambda sql: f"CASE WHEN {sql} = 1 THEN 't' ELSE 'f' END",
)
# PostgreSQL computes with the bytes, another engine with their hex.
PSEUDONYM = Kind(input="text", encoded=lambda sql: f"encode({sql}, 'hex')", as_text=as_bytes)


@dataclass(frozen=True, kw_only=True)
class DerivedColumn:
    """A column of a derived table.

    Attributes:
        name: The table's.
        kind: Its values.
        step: The name of the step's column, where that is another one.
        if_late: Whether it is kept of those outcomes alone that are late.
    """

    name: str
    kind: Kind
    step: str | None = None
    if_late: bool = False

    @property
    def computed(self) -> str:
        """The name of the step's column."""
        return self.step or self.name

    @property
    def value(self) -> str:
        """SQL for its value in a row `r` of the step."""
        value = f"r.{self.computed}"
        return f"CASE WHEN r.late = 1 THEN {value} END" if self.if_late else value


# --- Tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A table that a step of the text fills.

    A step may compute a row that an earlier run stored: an outcome that is delivered again, a unit
    that is sighted again. Which row wins does not depend on the order in which they are read.

    Attributes:
        name: The table's name.
        step: The step's.
        columns: The table's columns, beside the experiment's id.
        moment: The step's column of when a row came to be; None where a row has no time.
        keep: What an insert does with a row whose key is stored already.
        evidence: The condition on a row `r` of the step that evidence is read from it.
    """

    name: str
    step: str
    columns: Sequence[DerivedColumn]
    moment: str | None = "block"
    keep: str = "ON CONFLICT DO NOTHING"
    evidence: str = "1 = 1"

    @property
    def key(self) -> list[str]:
        """The columns that tell a row from all others."""
        return [column.name for column in metadata.tables[self.name].primary_key]

    @property
    def insert(self) -> str:
        """A statement of PostgreSQL that adds the rows of the step."""
        names = ", ".join(column.name for column in self.columns)
        values = ", ".join(
            f"{column.kind.stored(f'({column.value})')} AS {column.name}" for column in self.columns
        )
        # An insert in the order of the key takes a third of the time of any other.
        return f"""
INSERT INTO {self.name} (experiment_id, {names})
SELECT s.experiment AS experiment_id, {values}
FROM {self.step} AS r JOIN scope AS s ON s.number = r.number
ORDER BY {", ".join(self.key)}
{self.keep}
"""

    @property
    def fields(self) -> Mapping[str, Field]:
        """The columns as another engine copies them from rows `r`, with `experiment_ids` as `x`."""
        return {
            "experiment_id": Field(sql="x.experiment_id", as_text=as_plain_text),
            **{
                column.name: Field(
                    sql=column.kind.copied(column.value), as_text=column.kind.as_text
                )
                for column in self.columns
            },
        }

    @property
    def inputs(self) -> Columns:
        """The columns of its rows where they are an input of an engine."""
        return {column.computed: column.kind.input for column in self.columns}

    def read(self, alias: str, *, encoded: bool = False) -> str:
        """Returns SQL of PostgreSQL for the columns of a stored row as the text knows them.

        Args:
            alias: The row's.
            encoded: Whether another engine reads them.
        """
        return ", ".join(
            f"{column.kind.read(f'{alias}.{column.name}', encoded=encoded)} AS {column.computed}"
            for column in self.columns
        )


def _exposure(*, if_late: bool = False) -> list[DerivedColumn]:
    """Returns block, arm and stratum of a unit's exposure, which several tables repeat."""
    return [
        DerivedColumn(name="block", kind=MOMENT, if_late=if_late),
        DerivedColumn(name="arm", kind=ARM, if_late=if_late),
        DerivedColumn(name="stratum", kind=TEXT, if_late=if_late),
    ]


UNIT = DerivedColumn(name="unit", kind=TEXT)
METRIC = DerivedColumn(name="metric", kind=TEXT)
RECEIVED = DerivedColumn(name="received_at", step="received", kind=MOMENT)

EXPOSURES = Derived(
    name="exposures",
    step="new_exposures",
    columns=[
        UNIT,
        DerivedColumn(name="exposed_at", kind=MOMENT),
        *_exposure(),
        DerivedColumn(name="commit_sha", kind=TEXT),
        DerivedColumn(name="pseudonym", kind=PSEUDONYM),
    ],
    # Evidence asks of an exposure alone whether a unit that was sighted is exposed as well.
    evidence="""
EXISTS (SELECT 1 FROM new_sightings AS s WHERE s.number = r.number AND s.unit = r.unit)
""",
)
STRATA = Derived(
    name="strata",
    step="new_strata",
    columns=[
        *(DerivedColumn(name=name, kind=TEXT) for name in ("stratum", "commit_sha", "lineage")),
        DerivedColumn(name="flags", kind=JSON),
    ],
    moment=None,
)
SIGHTINGS = Derived(
    name="sightings",
    step="new_sightings",
    columns=[
        DerivedColumn(name="kind", kind=SIGHTING),
        UNIT,
        DerivedColumn(name="at", step="sighted_at", kind=MOMENT),
        *_exposure(),
    ],
    moment="sighted_at",
    keep="""
ON CONFLICT (experiment_id, kind, unit) DO UPDATE SET at = least(sightings.at, excluded.at)
""",
)
BLOCK_UNITS = Derived(
    name="block_units",
    step="new_block_units",
    columns=[
        DerivedColumn(name="block", kind=MOMENT),
        # Units by arm, and those that the treatment's own commit served or that came back.
        *(
            DerivedColumn(name=name, kind=NUMBER)
            for name in (
                *("treatment", "control", "partial", "in_flight", "excluded", "warming"),
                *("own", "returned", "strayed"),
            )
        ),
    ],
)
CONVERSIONS = Derived(
    name="conversions",
    step="new_conversions",
    columns=[
        METRIC,
        UNIT,
        RECEIVED,
        DerivedColumn(name="late", kind=FLAG),
        *_exposure(if_late=True),
    ],
    moment="received",
    keep="""
ON CONFLICT (experiment_id, metric, unit) DO UPDATE
SET received_at = least(conversions.received_at, excluded.received_at),
    late = conversions.late AND excluded.late,
    block = CASE WHEN conversions.late AND excluded.late THEN excluded.block END,
    arm = CASE WHEN conversions.late AND excluded.late THEN excluded.arm END,
    stratum = CASE WHEN conversions.late AND excluded.late THEN excluded.stratum END
""",
    evidence="r.late = 1",
)
AMOUNTS = Derived(
    name="amounts",
    step="new_amounts",
    columns=[
        METRIC,
        UNIT,
        DerivedColumn(name="key", step="event_key", kind=TEXT),
        RECEIVED,
        DerivedColumn(name="value", kind=NUMBER),
    ],
    moment="received",
    keep="""
ON CONFLICT (experiment_id, metric, unit, key) DO UPDATE
SET received_at = excluded.received_at, value = excluded.value
WHERE (excluded.received_at, excluded.value) < (amounts.received_at, amounts.value)
""",
    evidence="1 = 0",
)
# These tables have a row for each unit.
UNIT_TABLES = (EXPOSURES, SIGHTINGS, CONVERSIONS, AMOUNTS)
# Engines copy all tables but cells, whose sums Python makes of whole numbers.
COPIED_TABLES = (*UNIT_TABLES, STRATA, BLOCK_UNITS)
