"""The list of places, as they are served."""

from sqlalchemy import Connection, text

from domain.planning.place import Place, PlaceAction, PlaceOutcome, PlaceState
from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of
from storage.verdicts.situations import SUSPECTED

_ACTIONS: dict[PlaceOutcome, PlaceAction] = {
    "keep": "promote",
    "harmless": "promote",
    "rollback": "withdraw",
    "iterate": "withdraw",
    "suspected": "withdraw",
    "unanswered": "withdraw",
}

_PLACES = text(f"""
SELECT p.*, request ->> 'metric' AS metric, request #>> '{{flag,name}}' AS flag,
    request ->> 'commit' AS commit, request ->> 'actor' AS actor,
    (request ->> 'accept_harm')::float AS accept_harm,
    (request ->> 'patience_hours')::float AS patience_hours,
    state = 'placed' AND coalesce(({SUSPECTED} AND NOT v.decided), false) AS suspected,
    state, CASE WHEN state = 'queued' THEN (
        SELECT count(*) FROM places AS q
        WHERE q.project_id = p.project_id AND q.environment = p.environment
          AND q.placed_at IS NULL AND q.ended_at IS NULL
          AND (q.asked_at, q.place_id) <= (p.asked_at, p.place_id)
    ) END AS position
FROM places AS p LEFT JOIN verdicts AS v USING (project_id, experiment_id) CROSS JOIN LATERAL (
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
            action=_action(row.state, row.outcome, suspected=row.suspected),
            sentence=_sentence(
                row.change,
                position=row.position,
                flag=row.flag if row.kind == "flag" else None,
                share=row.share,
                expected_hours=row.expected_hours,
                outcome=row.outcome,
                accept_harm=row.accept_harm,
                detail=row.detail,
                suspected=row.suspected,
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


def _action(state: PlaceState, outcome: PlaceOutcome | None, *, suspected: bool) -> PlaceAction:
    """Returns the caller's next step; `suspected`: its change is worse, unless units are lost."""
    if outcome is not None:
        return _ACTIONS.get(outcome, "none")
    if suspected:
        return "pause"
    return "serve" if state == "placed" else "wait"


def _sentence(
    change: str,
    *,
    position: int | None,
    flag: str | None,
    share: float | None,
    expected_hours: float | None,
    outcome: PlaceOutcome | None,
    accept_harm: float,
    detail: str | None,
    suspected: bool,
) -> str:
    """Returns a place in a sentence, with the next step."""
    if outcome is not None:
        return {
            "keep": f"Promote {change}: keep.",
            "harmless": f"Promote {change}: a loss beyond {100 * accept_harm:g} % is excluded.",
            "rollback": f"Withdraw {change}: rollback.",
            "iterate": f"Withdraw {change}: iterate, it harms a guardrail.",
            "suspected": f"Withdraw {change}: worse, unless units are lost.",
            "unanswered": f"Withdraw {change}: no answer in the time that it had.",
            "given_back": f"The place of {change} was given back.",
            "refused": f"{change} cannot be measured: {detail}.",
        }[outcome]
    if suspected:
        return f"Raise the share of {change} no further: worse, unless units are lost."
    if position is not None:
        return f"{change} waits for a place, as number {position}."
    takes = "" if expected_hours is None else f" An answer takes about {expected_hours:.2g} hours."
    if flag is not None:
        return f"Turn flag {flag} on for {100 * (share or 0):g} % of units.{takes}"
    return (
        f"Serve {change} to {100 * (share or 0):g} % of units, and post its deploy with"
        f" allocation {share:g}.{takes}"
    )
