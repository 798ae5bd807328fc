"""`POST /v1/revenue/events`: revenue and funnel events, each stored once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    RootModel,
    Tag,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.caller import RevenueWriter
from api.runtime.keyring import Caller
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.body import body_of
from api.wire.documentation import json_body, reading
from api.wire.moment import Moment
from api.wire.problem import Fault, invalid
from api.wire.shape import FreeForm, Shape, named
from domain.absence import is_nobody
from domain.currency import CODES
from domain.metric import FUNNEL, MONETARY
from domain.millionths import LARGEST_AMOUNT
from storage.experiments.serving import AHEAD
from storage.log.revenue import RecordedRevenue, RevenueEvent, record_revenue
from storage.tenants.secret import Pseudonyms

router = APIRouter(tags=["revenue"])

MOST_EVENTS = 50


class Amount(Shape):
    """Money."""

    value: Annotated[
        int, Field(ge=0, le=LARGEST_AMOUNT, description="Minor units, written without a point.")
    ]
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
    user_ref: Annotated[str, Field(max_length=256)]
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255), AfterValidator(named)]
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
    restamped: list[str] = Field(
        default=[],
        description="Keys of duplicates that came with another `occurred_at`: the first is kept;"
        " left out if none.",
    )
    unknown: dict[str, int] = Field(
        default={},
        description="Of `user_ref`, and of `session_id` and `environment` in `attributes`, how many"
        " were words for nothing, or no text: these events are stored without; left out if none.",
    )


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
    def events(self) -> Mapping[str, RevenueEventBody]:
        """The events in the order of the request, by their pointers."""
        if isinstance(self.root, RevenueEventBody):
            return {"": self.root}
        return {f"/events/{index}": event for index, event in enumerate(self.root.events)}


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
    faults = [
        Fault(at=f"{at}/occurred_at", code="in_the_future", detail="more than 2 minutes ahead")
        for at, event in posted.events.items()
        if event.occurred_at - AHEAD > shared.writer.now()
    ]
    events = [
        _stored_form(event, caller, shared.pseudonyms, at, faults)
        for at, event in posted.events.items()
    ]
    if faults:
        raise invalid(faults)

    recorded = await shared.store.run(
        lambda connection: record_revenue(connection, caller.project_id, events, history=replay)
    )
    if not replay:
        new = compress(events, recorded.accepted)
        shared.admissions.received(caller.project_id, [event.event for event in new])
    unknown = [member for event in events for member in event.unknown]
    shared.admissions.lacked(caller.project_id, unknown)
    return answer(_receipt(events, recorded, Counter(unknown)))


def _stored_form(
    event: RevenueEventBody, caller: Caller, pseudonyms: Pseudonyms, at: str, faults: list[Fault]
) -> RevenueEvent:
    project_id, unit = caller.project_id, caller.settings.unit_property
    attributes = event.attributes
    user = None if is_nobody(event.user_ref) else pseudonyms.of(project_id, event.user_ref)
    if unit is not None:
        try:
            user, attributes = pseudonyms.of_unit(project_id, unit, attributes or {}, user=user)
        except ValueError as broken:
            faults.append(Fault(at=f"{at}/attributes/{unit}", code="invalid", detail=str(broken)))
    return RevenueEvent(
        idempotency_key=event.idempotency_key,
        event=event.event,
        occurred_at=event.occurred_at,
        pseudonym=user,
        amount_value=event.amount.value if event.amount else None,
        amount_currency=event.amount.currency if event.amount else None,
        attributes=attributes,
    )


def _receipt(
    events: Sequence[RevenueEvent], recorded: RecordedRevenue, unknown: Mapping[str, int]
) -> dict[str, object]:
    accepted = recorded.accepted
    rare = {"restamped": recorded.restamped, "unknown": unknown}
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
        **{member: value for member, value in rare.items() if value},
    }
