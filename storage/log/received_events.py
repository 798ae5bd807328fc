"""Received events: how many of each name a project's senders sent lately."""

from collections.abc import Mapping

from sqlalchemy import Connection, text

from domain.registration import ReceivedEvents
from storage.postgres.rows import value_of

_TODAY = "(statement_timestamp() AT TIME ZONE 'UTC')::date"
# A rate is of this many seconds at least: the first requests of a name are no measure of an hour.
_LEAST_SECONDS = 300
_MOST_SHOWN = 20

_ADD = text(f"""
INSERT INTO name_counts AS c (project_id, event, day, events)
SELECT n.project_id, n.event, {_TODAY}, n.events
FROM unnest(CAST(:ids AS int[]), CAST(:names AS text[]), CAST(:counts AS bigint[]))
    AS n (project_id, event, events)
-- Anybody who has a key can invent names, of which so many are noted.
JOIN seen_names AS s USING (project_id, event)
-- Sorted, so that no two processes wait for each other.
ORDER BY n.project_id, n.event
ON CONFLICT (project_id, event, day) DO UPDATE SET events = c.events + excluded.events
""")
_PRUNE = text(f"DELETE FROM name_counts WHERE project_id = ANY(:ids) AND day < {_TODAY} - 1")


def add_name_counts(connection: Connection, counted: Mapping[int, Mapping[str, int]]) -> None:
    """Adds counts of events by project and name to those of today, and deletes older counts."""
    rows = [(id_, name, count) for id_, of in counted.items() for name, count in of.items()]
    if rows:
        ids, names, counts = map(list, zip(*rows, strict=True))
        connection.execute(_PRUNE, {"ids": ids})
        connection.execute(_ADD, {"ids": ids, "names": names, "counts": counts})


_READ = text(f"""
SELECT event, 3600 * sum(c.events)::float / greatest(
    extract(epoch FROM statement_timestamp() - greatest(
        s.first_at, CAST({_TODAY} - 1 AS timestamp) AT TIME ZONE 'UTC'
    )), {_LEAST_SECONDS}
)::float AS per_hour
FROM name_counts AS c JOIN seen_names AS s USING (project_id, event)
WHERE c.project_id = :project_id AND c.day >= {_TODAY} - 1
GROUP BY event, s.first_at
ORDER BY per_hour DESC, event LIMIT {_MOST_SHOWN}
""")


def read_name_counts(connection: Connection, project_id: int) -> list[ReceivedEvents]:
    """Returns the names of events that came live since yesterday, the most frequent first."""
    rows = connection.execute(_READ, {"project_id": project_id})
    return [value_of(ReceivedEvents, row) for row in rows]
