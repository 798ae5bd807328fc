"""Deliveries as pages show them: what went to which webhook, and how that ended."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class ListedDelivery:
    """A delivery in a list.

    Attributes:
        experiment_id: The experiment that it is about; None of a trial of a webhook.
        target: The webhook, as the delivery names it.
        problem: The fault of the last attempt, in words of ours; None where there is none.
    """

    kind: str
    subject: str
    experiment_id: str | None
    announced_at: datetime
    target: str
    attempts: int
    next_attempt_at: datetime
    delivered_at: datetime | None
    given_up_at: datetime | None
    problem: str | None


_LIST = text("""
SELECT a.kind, a.subject, a.experiment_id, a.announced_at, d.target, d.attempts, d.next_attempt_at,
    d.delivered_at, d.given_up_at, d.problem
FROM deliveries AS d JOIN announcements AS a USING (announcement_id)
WHERE a.project_id = :project_id
ORDER BY a.announced_at DESC, a.announcement_id, d.target
LIMIT :limit
""")


def list_deliveries(connection: Connection, project_id: int, *, limit: int) -> list[ListedDelivery]:
    """Returns a project's deliveries, the newest first."""
    rows = connection.execute(_LIST, {"project_id": project_id, "limit": limit})
    return [ListedDelivery(**row) for row in rows.mappings()]
