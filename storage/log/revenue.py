"""Revenue and funnel events: stored once each, however often they are sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert

from domain.absence import is_nothing
from domain.registration import PRODUCTION
from storage.experiments.graphs import document_digest
from storage.log.events import note_history, note_names, require_open_history
from storage.postgres.refusal import Conflict
from storage.schema.clock import receipt_time
from storage.schema.encoding import PERSON
from storage.schema.tables import revenue_events
from storage.tenants.settings import lock_project

# Those that the attribution reads.
_ATTRIBUTES = ("session_id", "environment")


@dataclass(frozen=True, kw_only=True)
class RevenueEvent:
    """A revenue event as it is stored: its user a pseudonym, its currency upper case.

    The user is None where the reference names nobody.
    """

    idempotency_key: str
    event: str
    occurred_at: datetime
    pseudonym: bytes | None
    amount_value: int | None = None
    amount_currency: str | None = None
    attributes: dict[str, Any] | None = None

    @property
    def digest(self) -> bytes:
        """What tells the same event sent again from another event under its key.

        Not its time: a webhook may stamp each attempt anew.
        """
        return document_digest(
            {
                "event": self.event,
                "pseudonym": None if self.pseudonym is None else self.pseudonym.hex(),
                "amount": [self.amount_value, self.amount_currency],
                "attributes": self.attributes,
            }
        )

    def attribute(self, name: str) -> str | None:
        """Returns a text attribute that the attribution reads, if it says something."""
        value = (self.attributes or {}).get(name)
        return value.strip() if isinstance(value, str) and not is_nothing(value) else None

    @property
    def unknown(self) -> list[str]:
        """The members that hold words for nothing, or no text, and are read as if left out."""
        named = [name for name in _ATTRIBUTES if (self.attributes or {}).get(name) is not None]
        unknown = [name for name in named if self.attribute(name) is None]
        person = (self.attributes or {}).get(PERSON)
        return [*unknown, "user_ref"] if self.pseudonym is person is None else unknown


@dataclass(frozen=True, kw_only=True)
class RecordedRevenue:
    """The outcome of recording revenue events."""

    accepted: Sequence[bool]
    restamped: Sequence[str]


def record_revenue(
    connection: Connection,
    project_id: int,
    events: Sequence[RevenueEvent],
    *,
    history: bool = False,
) -> RecordedRevenue:
    """Stores events, each key once, with the time that it came with first.

    Args:
        connection: In a transaction: all events are stored, or none.
        events: In the order of the request.

    Raises:
        Conflict: A key was used before with another payload; the detail names each. Or, of
            history, an event falls into the past of a bound experiment.
    """
    moments = [
        (event.attribute("environment") or PRODUCTION, event.occurred_at) for event in events
    ]
    if history:
        # None of its experiments is bound meanwhile.
        lock_project(connection, project_id, shared=True)
        require_open_history(connection, project_id, moments)
    received_at = receipt_time(connection)
    if history:
        note_history(connection, project_id, moments)
    first: dict[str, RevenueEvent] = {}
    for event in events:
        first.setdefault(event.idempotency_key, event)
    # Sorted, so that two requests with the same keys wait for each other in the same order.
    values = [
        {
            "project_id": project_id,
            "idempotency_key": key,
            "event": event.event,
            "occurred_at": event.occurred_at,
            "received_at": event.occurred_at if history else received_at,
            "amount_value": event.amount_value,
            "amount_currency": event.amount_currency,
            "pseudonym": event.pseudonym,
            "session_id": event.attribute("session_id"),
            "environment": event.attribute("environment"),
            "attributes": event.attributes,
            "digest": event.digest,
        }
        for key, event in sorted(first.items())
    ]
    new = set(
        connection.execute(
            insert(revenue_events)
            .values(values)
            .on_conflict_do_nothing()
            .returning(revenue_events.c.idempotency_key)
        ).scalars()
    )
    restamped = _require_same_payloads(connection, project_id, events)
    note_names(connection, {project_id: {event.event for event in events}}, live=not history)
    accepted: list[bool] = []
    for event in events:
        accepted.append(event.idempotency_key in new)
        new.discard(event.idempotency_key)
    return RecordedRevenue(accepted=accepted, restamped=restamped)


def _require_same_payloads(
    connection: Connection, project_id: int, events: Sequence[RevenueEvent]
) -> list[str]:
    """Returns the keys whose stored event has another time, each once."""
    columns = revenue_events.c
    rows = connection.execute(
        select(columns.idempotency_key, columns.digest, columns.occurred_at).where(
            columns.project_id == project_id,
            columns.idempotency_key.in_({e.idempotency_key for e in events}),
        )
    )
    stored = {key: (digest, occurred_at) for key, digest, occurred_at in rows}
    contradicting = sorted(
        {e.idempotency_key for e in events if stored[e.idempotency_key][0] != e.digest}
    )
    if contradicting:
        raise Conflict(
            "idempotency_conflict",
            f"used before with another payload: {', '.join(map(repr, contradicting))}",
        )
    return sorted(
        {e.idempotency_key for e in events if stored[e.idempotency_key][1] != e.occurred_at}
    )
