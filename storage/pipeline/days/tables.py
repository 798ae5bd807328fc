"""Tables of a day check: the statements by which both sides' rows of some days are read."""

from collections.abc import Mapping
from dataclasses import dataclass

from storage.pipeline.engines.postgres_engine import (
    epoch_microseconds,
    number_of_arm,
    number_of_kind,
)
from storage.pipeline.transfer.unit_rows import BLOCK_COUNTS
from storage.postgres.engine import SCHEMA


@dataclass(frozen=True, kw_only=True)
class ComparedTable:
    """A derived table's rows of some days, on both sides.

    Both statements select the experiment's number, then keys, then values; they read
    `checked_days`, of which each side has its own.

    Attributes:
        name: The table's.
        keys: The columns that identify a row beside its experiment, with their types.
        values: The others.
        served: A SELECT of PostgreSQL.
        computed: A SELECT of the engine.
    """

    name: str
    keys: Mapping[str, str]
    values: Mapping[str, str]
    served: str
    computed: str


_EXPOSED_ON_DAYS = f"""
FROM checked_days AS d JOIN {SCHEMA}.exposures AS p
  ON p.experiment_id = d.experiment_id AND p.block >= d.from_block AND p.block < d.to_block
"""
_EXPOSURE = {"block": "bigint", "arm": "int", "stratum": "text"}
_SERVED_EXPOSURE = f"{epoch_microseconds('p.block')}, {number_of_arm('p.arm')}, p.stratum"

EXPOSURE_TABLES = (
    ComparedTable(
        name="exposures",
        keys={"unit": "text"},
        values={
            "exposed_at": "bigint",
            **_EXPOSURE,
            "commit_sha": "text",
            "pseudonym": "text",
        },
        served=f"SELECT d.number, p.unit, {epoch_microseconds('p.exposed_at')},"
        f" {_SERVED_EXPOSURE}, p.commit_sha, encode(p.pseudonym, 'hex') {_EXPOSED_ON_DAYS}",
        computed="""
SELECT r.number, r.unit, r.exposed_at, r.block, r.arm, r.stratum, r.commit_sha, r.pseudonym
FROM new_exposures AS r JOIN checked_days AS d USING (number)
WHERE r.block >= d.from_block AND r.block < d.to_block
""",
    ),
    ComparedTable(
        name="block_units",
        keys={"block": "bigint"},
        values=dict.fromkeys(BLOCK_COUNTS, "bigint"),
        served=f"SELECT d.number, {epoch_microseconds('p.block')},"
        f" {', '.join(f'p.{name}' for name in BLOCK_COUNTS)}"
        f" {_EXPOSED_ON_DAYS.replace('.exposures', '.block_units')}",
        computed=f"""
SELECT r.number, r.block, {", ".join(f"r.{name}" for name in BLOCK_COUNTS)}
FROM new_block_units AS r JOIN checked_days AS d USING (number)
WHERE r.block >= d.from_block AND r.block < d.to_block
""",
    ),
    ComparedTable(
        name="sightings",
        keys={"kind": "int", "unit": "text"},
        values={"sighted_at": "bigint", **_EXPOSURE},
        served=f"SELECT d.number, {number_of_kind('p.kind')}, p.unit,"
        f" {epoch_microseconds('p.at')},"
        f" {_SERVED_EXPOSURE} FROM checked_days AS d JOIN {SCHEMA}.sightings AS p"
        " ON p.experiment_id = d.experiment_id AND p.at > d.sighted_after AND p.at <= d.sighted_to",
        # A unit that was sighted before is sighted again here.
        computed="""
SELECT r.number, r.kind, r.unit, r.sighted_at, r.block, r.arm, r.stratum
FROM new_sightings AS r JOIN checked_days AS d USING (number)
WHERE r.sighted_at > d.sighted_after AND r.sighted_at <= d.sighted_to AND NOT EXISTS (
    SELECT 1 FROM known_sightings AS k
    WHERE k.experiment = r.number AND k.kind = r.kind AND k.unit = r.unit
)
""",
    ),
)

_SERVED_OUTCOMES = f"""
{_EXPOSED_ON_DAYS}
JOIN checked_metrics AS m ON m.experiment_id = d.experiment_id
JOIN {SCHEMA}.{{table}} AS o
  ON o.experiment_id = d.experiment_id AND o.metric = m.metric AND o.unit = p.unit
 AND o.received_at <= d.received_to
"""
_COMPUTED_OUTCOMES = """
FROM {relation} AS r JOIN checked_days AS d USING (number)
WHERE r.received <= d.received_to AND EXISTS (
    SELECT 1 FROM units_of_days AS u WHERE u.number = r.number AND u.unit = r.unit
)
"""
# An outcome of a person who was forgotten is dated to the closing of its cell, which may be later
# than all that was read: the bound of `received` leaves it out on both sides.
OUTCOME_TABLES = (
    ComparedTable(
        name="conversions",
        keys={"metric": "text", "unit": "text"},
        values={"received": "bigint", "late": "int", **_EXPOSURE},
        served=f"SELECT d.number, o.metric, o.unit, {epoch_microseconds('o.received_at')},"
        f" o.late::integer, {epoch_microseconds('o.block')}, {number_of_arm('o.arm')}, o.stratum"
        f" {_SERVED_OUTCOMES.format(table='conversions')}",
        computed=f"""
SELECT r.number, r.metric, r.unit, r.received, r.late, CASE WHEN r.late = 1 THEN r.block END,
    CASE WHEN r.late = 1 THEN r.arm END, CASE WHEN r.late = 1 THEN r.stratum END
{_COMPUTED_OUTCOMES.format(relation="new_conversions")}
""",
    ),
    ComparedTable(
        name="amounts",
        keys={"metric": "text", "unit": "text", "event_key": "text"},
        values={"received": "bigint", "value": "bigint"},
        served=f"SELECT d.number, o.metric, o.unit, o.key, {epoch_microseconds('o.received_at')},"
        f" o.value {_SERVED_OUTCOMES.format(table='amounts')}",
        computed="SELECT r.number, r.metric, r.unit, r.event_key, r.received, r.value"
        + _COMPUTED_OUTCOMES.format(relation="new_amounts"),
    ),
)
