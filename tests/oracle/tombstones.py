"""Tombstones: what no event stands behind any more, as the oracle reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

_READ = {
    "exposures": """
        SELECT unit, exposed_at, block, arm, stratum, o.commit_sha, pseudonym, as_drawn, event,
            coalesce(s.lineage, stratum) AS lineage, coalesce(s.flags, '{}') AS flags
        FROM tombstone_exposures_in_words AS o LEFT JOIN strata AS s USING (experiment_id, stratum)
        WHERE experiment_id = :id
          AND block + interval '5 minutes' + make_interval(secs => :grace) <= :until
    """,
    "sightings": """
        SELECT kind, unit, sighted_at AS at, arm, event FROM tombstone_sightings_in_words
        WHERE experiment_id = :id AND sighted_at <= :until
    """,
    "conversions": """
        SELECT metric, unit, received_at FROM tombstone_conversions_in_words
        WHERE experiment_id = :id AND received_at <= :until
    """,
    "amounts": """
        SELECT metric, unit, event_key AS key, received_at, value
        FROM tombstone_amounts_in_words
        WHERE experiment_id = :id AND received_at <= :until
    """,
}


@dataclass(frozen=True, kw_only=True)
class Tombstones:
    """The tombstones of an experiment: rows as of the derived tables of these names."""

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
