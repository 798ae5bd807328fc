"""Unit rows: units, their strata and their counts, from an engine into derived tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from storage.pipeline.engines.engine import DayEngine
from storage.pipeline.steps import ARMS, SIGHTING_KINDS
from storage.pipeline.transfer.copying import (
    Field,
    bytes_field,
    copy_into_store,
    moment_field,
    plain_field,
    text_field,
)

# Of each block: units by arm, and those that the treatment's own commit served or that came back.
BLOCK_COUNTS = (
    *("treatment", "control", "partial", "in_flight", "excluded", "warming"),
    *("own", "returned", "strayed"),
)


def _name_of_number(column: str, names: Mapping[int, str]) -> str:
    cases = " ".join(f"WHEN {number} THEN '{name}'" for number, name in names.items())
    return f"CASE {column} {cases} END"


_ARM = plain_field(_name_of_number("r.arm", dict(enumerate(ARMS))))
# Block, arm and stratum of the unit's exposure, in the tables that repeat them.
_EXPOSURE = {"block": moment_field("r.block"), "arm": _ARM, "stratum": text_field("r.stratum")}


@dataclass(frozen=True, kw_only=True)
class _DerivedTable:
    """A derived table, as an engine computes its rows.

    Attributes:
        relation: The step that computes them.
        columns: By the table's columns.
    """

    relation: str
    columns: Mapping[str, Field]


_DERIVED_TABLES = {
    "exposures": _DerivedTable(
        relation="new_exposures",
        columns={
            "experiment_id": plain_field("x.experiment_id"),
            "unit": text_field("r.unit"),
            "exposed_at": moment_field("r.exposed_at"),
            **_EXPOSURE,
            "commit_sha": text_field("r.commit_sha"),
            "pseudonym": bytes_field("r.pseudonym"),
        },
    ),
    "sightings": _DerivedTable(
        relation="new_sightings",
        columns={
            "experiment_id": plain_field("x.experiment_id"),
            "kind": plain_field(_name_of_number("r.kind", SIGHTING_KINDS)),
            "unit": text_field("r.unit"),
            "at": moment_field("r.sighted_at"),
            **_EXPOSURE,
        },
    ),
    "conversions": _DerivedTable(
        relation="new_conversions",
        columns={
            "experiment_id": plain_field("x.experiment_id"),
            "metric": text_field("r.metric"),
            "unit": text_field("r.unit"),
            "received_at": moment_field("r.received"),
            "late": plain_field("CASE WHEN r.late = 1 THEN 't' ELSE 'f' END"),
            **{
                name: replace(field, sql=f"CASE WHEN r.late = 1 THEN {field.sql} END")
                for name, field in _EXPOSURE.items()
            },
        },
    ),
    "amounts": _DerivedTable(
        relation="new_amounts",
        columns={
            "experiment_id": plain_field("x.experiment_id"),
            "metric": text_field("r.metric"),
            "unit": text_field("r.unit"),
            "key": text_field("r.event_key"),
            "received_at": moment_field("r.received"),
            "value": plain_field("r.value"),
        },
    ),
    "strata": _DerivedTable(
        relation="new_strata",
        columns={
            "experiment_id": plain_field("x.experiment_id"),
            **{
                name: text_field(f"r.{name}")
                for name in ("stratum", "commit_sha", "lineage", "flags")
            },
        },
    ),
    "block_units": _DerivedTable(
        relation="new_block_units",
        columns={
            "experiment_id": plain_field("x.experiment_id"),
            "block": moment_field("r.block"),
            # They are sums, and engines differ in the type of a sum.
            **{name: plain_field(f"CAST(r.{name} AS BIGINT)") for name in BLOCK_COUNTS},
        },
    ),
}
# Those with a row for each unit.
UNIT_TABLES = ("exposures", "sightings", "conversions", "amounts")


def copy_computed(
    engine: DayEngine,
    connection: Connection,
    table: str,
    *,
    prefix: str = "",
    condition: str = "true",
    order: Sequence[str] = (),
) -> int:
    """Copies the rows that an engine computed for a derived table.

    Args:
        engine: Which holds the steps' relations and `experiment_ids`.
        connection: To the store.
        table: One of `UNIT_TABLES`, `strata` or `block_units`.
        prefix: Before the name of the table to which they are copied.
        condition: On the rows `r` of the engine.
        order: The columns by which they are ordered.

    Returns:
        The number of rows.
    """
    rows = _DERIVED_TABLES[table]
    ids = "JOIN experiment_ids AS x ON x.number = r.number"
    source = f"{rows.relation} AS r {ids} WHERE {condition}"
    if order:
        source += f" ORDER BY {', '.join(rows.columns[name].sql for name in order)}"
    return copy_into_store(engine, connection, f"{prefix}{table}", rows.columns, source)
