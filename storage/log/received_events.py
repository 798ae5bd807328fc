"""Received events: how many of each name a project's senders sent lately."""

from collections.abc import Mapping

from sqlalchemy import Connection, text

TODAY = "(statement_timestamp() AT TIME ZONE 'UTC')::date"

_ADD = text(f"""
INSERT INTO name_counts AS c (project_id, event, day, events)
SELECT n.project_id, n.event, {TODAY}, n.events
FROM unnest(CAST(:ids AS int[]), CAST(:names AS text[]), CAST(:counts AS bigint[]))
    AS n (project_id, event, events)
-- Anybody who has a key can invent names, of which so many are noted.
JOIN seen_names AS s USING (project_id, event)
-- Sorted, so that no two processes wait for each other.
ORDER BY n.project_id, n.event
ON CONFLICT (project_id, event, day) DO UPDATE SET events = c.events + excluded.events
""")
_PRUNE = text(f"DELETE FROM name_counts WHERE project_id = ANY(:ids) AND day < {TODAY} - 1")


def add_name_counts(connection: Connection, counted: Mapping[int, Mapping[str, int]]) -> None:
    """Adds counts of events by project and name to those of today, and deletes older counts."""
    rows = [(id_, name, count) for id_, of in counted.items() for name, count in of.items()]
    if rows:
        ids, names, counts = map(list, zip(*rows, strict=True))
        connection.execute(_PRUNE, {"ids": ids})
        connection.execute(_ADD, {"ids": ids, "names": names, "counts": counts})
