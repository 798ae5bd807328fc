"""Tombstones: what no event stands behind any more, laid beside what the walk reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

_EXPOSURES = text("""
INSERT INTO exposures
    (experiment_id, unit, exposed_at, block, arm, stratum, commit_sha, pseudonym)
SELECT t.experiment_id, t.unit, t.exposed_at, t.block, t.arm, t.stratum, t.commit_sha, t.pseudonym
FROM scope AS s
JOIN tombstone_exposures AS t
  ON t.experiment_id = s.experiment_id AND t.block >= s.from_block AND t.block < s.to_block
ON CONFLICT (experiment_id, unit) DO NOTHING
""")

_STRATA = text("""
INSERT INTO strata (experiment_id, stratum, commit_sha)
SELECT t.experiment_id, t.stratum, min(t.commit_sha)
FROM scope AS s
JOIN tombstone_exposures AS t
  ON t.experiment_id = s.experiment_id AND t.block >= s.from_block AND t.block < s.to_block
WHERE t.stratum IS NOT NULL
GROUP BY t.experiment_id, t.stratum
ON CONFLICT DO NOTHING
""")

_SIGHTINGS = text("""
INSERT INTO sightings (experiment_id, kind, unit, at)
SELECT t.experiment_id, t.kind, t.unit, t.at
FROM scope AS s
JOIN tombstone_sightings AS t
  ON t.experiment_id = s.experiment_id AND t.at >= s.from_block AND t.at <= s.received_to
ON CONFLICT (experiment_id, kind, unit) DO UPDATE SET at = least(sightings.at, excluded.at)
""")

_CONVERSIONS = text("""
INSERT INTO conversions (experiment_id, metric, unit, received_at, late)
SELECT t.experiment_id, t.metric, t.unit, t.received_at, t.late
FROM scope AS s
JOIN tombstone_conversions AS t
  ON t.experiment_id = s.experiment_id AND t.metric = s.metric
 AND t.received_at > s.from_block AND t.received_at <= s.to_block + s.grace
ON CONFLICT (experiment_id, metric, unit) DO UPDATE
SET received_at = least(conversions.received_at, excluded.received_at),
    late = conversions.late AND excluded.late
""")

_AMOUNTS = text("""
INSERT INTO amounts (experiment_id, metric, unit, key, received_at, value)
SELECT t.experiment_id, t.metric, t.unit, t.key, t.received_at, t.value
FROM scope AS s
JOIN tombstone_amounts AS t
  ON t.experiment_id = s.experiment_id AND t.metric = s.metric
 AND t.received_at > s.from_block AND t.received_at <= s.to_block + s.grace
ON CONFLICT (experiment_id, metric, unit, key) DO UPDATE
SET received_at = excluded.received_at, value = excluded.value
WHERE (excluded.received_at, excluded.value) < (amounts.received_at, amounts.value)
""")


def lay_exposures(connection: Connection) -> None:
    """Adds the exposures and sightings that closed within the step's `scope`.

    Before what the log tells of the same units: what was told of them stands.
    """
    for statement in (_EXPOSURES, _STRATA, _SIGHTINGS):
        connection.execute(statement)


def lay_outcomes(connection: Connection) -> None:
    """Adds the outcomes that were received within the step's `scope`."""
    for statement in (_CONVERSIONS, _AMOUNTS):
        connection.execute(statement)


# --- For the audit -------------------------------------------------------------------------------

_READ = {
    "exposures": """
        SELECT unit, exposed_at, block, arm, stratum, commit_sha, pseudonym
        FROM tombstone_exposures
        WHERE experiment_id = :id
          AND block + interval '5 minutes' + make_interval(secs => :grace) <= :until
    """,
    "sightings": """
        SELECT kind, unit, at FROM tombstone_sightings WHERE experiment_id = :id AND at <= :until
    """,
    "conversions": """
        SELECT metric, unit, received_at FROM tombstone_conversions
        WHERE experiment_id = :id AND received_at <= :until
    """,
    "amounts": """
        SELECT metric, unit, key, received_at, value FROM tombstone_amounts
        WHERE experiment_id = :id AND received_at <= :until
    """,
}


@dataclass(frozen=True, kw_only=True)
class Tombstones:
    """The tombstones of one experiment: rows as of the derived tables of these names."""

    exposures: Sequence[Row[Any]] = ()
    sightings: Sequence[Row[Any]] = ()
    conversions: Sequence[Row[Any]] = ()
    amounts: Sequence[Row[Any]] = ()


def read_tombstones(
    connection: Connection, experiment_id: str, *, until: datetime, grace_seconds: int
) -> Tombstones:
    """Returns an experiment's tombstones, as far as they had closed by a time."""
    asked = {"id": experiment_id, "until": until, "grace": grace_seconds}

    def rows(name: str) -> Sequence[Row[Any]]:
        statement = text(_READ[name])
        named = {key: asked[key] for key in statement.compile().params}
        return connection.execute(statement, named).all()

    return Tombstones(**{name: rows(name) for name in _READ})
