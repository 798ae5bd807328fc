"""The list of places, as they are served."""

from sqlalchemy import Connection, text

from domain.planning.place import Place, PlaceState, place_action, place_sentence
from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of

_PLACES = text("""
SELECT p.*, request ->> 'metric' AS metric, request #>> '{flag,name}' AS flag,
    request ->> 'commit' AS commit, request ->> 'actor' AS actor,
    (request ->> 'accept_harm')::float AS accept_harm,
    (request ->> 'patience_hours')::float AS patience_hours,
    state, CASE WHEN state = 'queued' THEN (
        SELECT count(*) FROM places AS q
        WHERE q.project_id = p.project_id AND q.environment = p.environment
          AND q.placed_at IS NULL AND q.ended_at IS NULL
          AND (q.asked_at, q.place_id) <= (p.asked_at, p.place_id)
    ) END AS position
FROM places AS p CROSS JOIN LATERAL (
    SELECT CASE WHEN ended_at IS NOT NULL THEN 'ended' WHEN placed_at IS NOT NULL THEN 'placed'
        ELSE 'queued' END AS state
) AS s
WHERE project_id = :project_id AND (CAST(:place_id AS text) IS NULL OR place_id = :place_id)
  AND (CAST(:change AS text) IS NULL OR change = :change)
  AND (CAST(:state AS text) IS NULL OR state = :state)
ORDER BY coalesce(ended_at, placed_at, asked_at) DESC, place_id DESC
LIMIT :limit
""")


def list_places(
    connection: Connection,
    project_id: int,
    *,
    place_id: str | None = None,
    change: str | None = None,
    state: PlaceState | None = None,
    limit: int = 1,
) -> list[Place]:
    """Returns a project's places, the last changed first."""
    bound = {"place_id": place_id, "change": change, "state": state, "limit": limit}
    return [
        value_of(
            Place,
            row,
            action=place_action(row.state, row.outcome),
            sentence=place_sentence(
                row.change,
                position=row.position,
                flag=row.flag if row.kind == "flag" else None,
                share=row.share,
                expected_hours=row.expected_hours,
                outcome=row.outcome,
                accept_harm=row.accept_harm,
                detail=row.detail,
            ),
        )
        for row in connection.execute(_PLACES, {**bound, "project_id": project_id})
    ]


def read_place(connection: Connection, project_id: int, place_id: str) -> Place:
    """Returns a place.

    Raises:
        Missing: The project has no such place.
    """
    for place in list_places(connection, project_id, place_id=place_id):
        return place
    raise Missing("unknown_place", "there is no such place")
