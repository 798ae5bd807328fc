"""`POST /v1/revenue/events`: revenue and funnel events, each stored once."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Discriminator, Field, RootModel, Tag, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.caller import RevenueWriter
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.body import body_of
from api.wire.documentation import json_body, reading
from api.wire.moment import Moment
from api.wire.shape import FreeForm, Shape
from domain.currency import CODES
from domain.metric import FUNNEL, MONETARY
from storage.log.revenue import RevenueEvent, record_revenue
from storage.tenants.secret import Pseudonyms

router = APIRouter(tags=["revenue"])

MOST_EVENTS = 50


class Amount(Shape):
    """Money."""

    value: Annotated[int, Field(ge=0, le=2**63 - 1, description="Minor units.")]
    currency: Annotated[str, Field(pattern=r"^[A-Za-z]{3}$", description="ISO 4217.")]

    @field_validator("currency")
    @classmethod
    def _known(cls, currency: str) -> str:
        if currency.upper() not in CODES:
            raise PydanticCustomError("unknown_currency", "is not a currency of ISO 4217")
        return currency.upper()


class RevenueEventBody(Shape):
    """A revenue or funnel event."""

    event: Literal[
        "signup_completed",
        "trial_started",
        "paywall_viewed",
        "trial_to_paid",
        "subscription_renewed",
        "subscription_churned",
        "expansion",
        "activation",
    ]
    occurred_at: Moment
    amount: Amount | None = Field(
        default=None,
        validate_default=True,
        description=(
            "Required of `trial_to_paid`, `subscription_renewed` and `expansion`; optional of"
            " `subscription_churned`; refused of the others."
        ),
    )
    user_ref: Annotated[str, Field(min_length=1, max_length=256)]
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255)]
    attributes: FreeForm | None = None

    @field_validator("amount")
    @classmethod
    def _as_the_event_needs(cls, amount: Amount | None, info: ValidationInfo) -> Amount | None:
        event = info.data.get("event")
        if event in MONETARY and amount is None:
            raise PydanticCustomError("missing", "is required of this event")
        if event in FUNNEL and amount is not None:
            raise PydanticCustomError("amount_of_funnel_event", "funnel events carry no amount")
        return amount


class RevenueEventBatch(Shape):
    """Revenue events that are stored together, or not at all."""

    events: Annotated[list[RevenueEventBody], Field(min_length=1, max_length=MOST_EVENTS)]


class RevenueResult(Shape):
    """The outcome of an event."""

    index: int
    idempotency_key: str
    status: Literal["accepted", "duplicate"]


class RevenueReceipt(Shape):
    """The outcome of the events."""

    accepted: int
    duplicates: int
    results: list[RevenueResult]


def _one_or_many(value: object) -> str:
    return "<batch>" if isinstance(value, dict) and "events" in value else "<event>"


_EXAMPLE = {
    "event": "trial_to_paid",
    "occurred_at": "2026-01-31T12:00:00Z",
    "amount": {"value": 4900, "currency": "USD"},
    "user_ref": "workspace-17",
    "idempotency_key": "invoice-2026-0042",
    "attributes": {"provider": "stripe", "plan": "team", "environment": "production"},
}


class PostedRevenue(RootModel[RevenueEventBatch | RevenueEventBody]):
    """An event, or a batch of them."""

    root: Annotated[
        Annotated[RevenueEventBatch, Tag("<batch>")] | Annotated[RevenueEventBody, Tag("<event>")],
        Discriminator(_one_or_many),
    ]

    @property
    def events(self) -> Sequence[RevenueEventBody]:
        """The events in the order of the request."""
        return self.root.events if isinstance(self.root, RevenueEventBatch) else [self.root]


@router.post(
    "/v1/revenue/events",
    summary="Send revenue and funnel events",
    responses={200: {"model": RevenueReceipt}},
    openapi_extra=reading(
        body=json_body(RevenueEventBody, RevenueEventBatch),
        examples={"an event": _EXAMPLE, "a batch": {"events": [_EXAMPLE]}},
        keys=("ProjectKey", "Bearer"),
        problems=["idempotency_conflict", "history_closed"],
    ),
)
async def post_revenue_events(
    request: Request,
    caller: RevenueWriter,
    posted: Annotated[PostedRevenue, Depends(body_of(PostedRevenue))],
    *,
    replay: Annotated[bool, Query(description="History: received when it occurred.")] = False,
) -> Response:
    """Store all events of the request, or none; an event sent again is a duplicate."""
    shared = runtime(request)
    events = [_stored_form(event, caller.project_id, shared.pseudonyms) for event in posted.events]

    def recording(connection: Connection) -> list[bool]:
        return record_revenue(connection, caller.project_id, events, history=replay)

    stored = await shared.store.run(recording)
    if not replay:
        new = [event.event for event, is_new in zip(events, stored, strict=True) if is_new]
        shared.admissions.received(caller.project_id, new)
    return answer(_receipt(events, stored))


def _stored_form(event: RevenueEventBody, project_id: int, pseudonyms: Pseudonyms) -> RevenueEvent:
    return RevenueEvent(
        idempotency_key=event.idempotency_key,
        event=event.event,
        occurred_at=event.occurred_at,
        pseudonym=pseudonyms.of(project_id, event.user_ref),
        amount_value=event.amount.value if event.amount else None,
        amount_currency=event.amount.currency if event.amount else None,
        attributes=event.attributes,
    )


def _receipt(events: Sequence[RevenueEvent], accepted: Sequence[bool]) -> dict[str, Any]:
    return {
        "accepted": sum(accepted),
        "duplicates": len(accepted) - sum(accepted),
        "results": [
            {
                "index": index,
                "idempotency_key": event.idempotency_key,
                "status": "accepted" if new else "duplicate",
            }
            for index, (event, new) in enumerate(zip(events, accepted, strict=True))
        ],
    }
