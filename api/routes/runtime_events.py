"""`POST /v1/events`: runtime events from browsers and servers."""

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.intake import take_events
from api.runtime.keyring import admitted
from api.runtime.origin import preflight
from api.wire.answer import answer
from api.wire.body import JSON
from api.wire.documentation import PlainRoute, json_body, reading
from api.wire.event_batch import EVENTS_PATH, RuntimeEventBatch, RuntimeEventBody
from api.wire.problem import Fault, invalid
from api.wire.shape import FaultShown, Shape
from storage.tenants.keys import KeyKind

router = APIRouter(route_class=PlainRoute, tags=["events"])

_EVENT = {
    "event": "page_view",
    "session_id": "s-4711",
    "route": "/checkout/[id]",
    "commit": "4f2a9c1d",
}


class RejectedEvent(Shape):
    """An event of a batch that was not stored, and why."""

    index: int
    errors: list[FaultShown]


class Sampling(Shape):
    """The units whose events are stored, so that a sender may leave the others out itself."""

    salt: str
    session: float | None = Field(default=None, description="The share of sessions.")
    user: float | None = Field(default=None, description="The share of users.")


class EventsReceipt(Shape):
    """The outcome of the events."""

    accepted: int
    late: int = Field(description="Of these, too old for any verdict to count.")
    rejected: list[RejectedEvent]
    sampled_out: int = Field(
        default=0, description="Valid events outside the project's sample; left out if none."
    )
    sampling: Sampling | None = Field(
        default=None, description="The sample; left out where all units are in it."
    )
    ignored: list[str] = Field(default=[], description="Unknown members; left out if none.")
    unknown: dict[str, int] = Field(
        default={},
        description="Of `commit`, `route` and `user_ref`, how many were zeros or words for nothing:"
        " these events are stored without; left out if none.",
    )


_BODY = json_body(RuntimeEventBody, RuntimeEventBatch)
_EXAMPLES = {
    "an exposure": _EVENT,
    "a batch": {
        "events": [_EVENT, {"event": "activation", "session_id": "s-4711"}],
        "sent_at": "2026-01-31T12:00:00Z",
    },
}


@router.post(
    EVENTS_PATH,
    status_code=202,
    summary="Send runtime events",
    responses={202: {"model": EventsReceipt}},
    openapi_extra=reading(
        body={**_BODY, "text/plain": _BODY[JSON]},
        examples=_EXAMPLES,
        keys=("ProjectKey", "KeyInQuery"),
        problems=[
            "invalid_encoding",
            "origin_not_allowed",
            "history_closed",
            "history_too_wide",
            "rate_limited",
        ],
        last_wins=True,
        parameters=[
            {
                "name": "replay",
                "in": "query",
                "description": "History: received when it occurred. Write key only.",
                "schema": {"type": "boolean", "default": False},
            }
        ],
    ),
)
async def post_events(request: Request) -> Response:
    """Store an event, or up to 500; valid ones are stored although others are rejected."""
    history = _is_history(request)
    kinds = (KeyKind.WRITE,) if history else (KeyKind.PUBLIC, KeyKind.WRITE)
    caller = await admitted(request, *kinds, query=True)
    media = (JSON, "text/plain")
    batch, late = await take_events(request, caller, media=media, history=history)
    receipt: dict[str, object] = {
        "accepted": batch.accepted,
        "late": late,
        "rejected": [
            {"index": event.index, "errors": [fault.document() for fault in event.faults]}
            for event in batch.rejected
        ],
    }
    if batch.sampled_out:
        receipt["sampled_out"] = batch.sampled_out
    if caller.sample is not None:
        receipt["sampling"] = caller.sample.document()
    if batch.ignored:
        receipt["ignored"] = batch.ignored_names
    if batch.unknown:
        receipt["unknown"] = batch.unknown
    return answer(receipt, status=202)


def _is_history(request: Request) -> bool:
    if not request.scope["query_string"]:
        return False
    replay = request.query_params.get("replay", "false")
    if replay not in ("true", "false"):
        fault = Fault(
            at="replay", code="bool_type", detail="must be true or false", place="parameter"
        )
        raise invalid([fault])
    return replay == "true"


router.add_api_route(EVENTS_PATH, preflight, methods=["OPTIONS"], include_in_schema=False)
