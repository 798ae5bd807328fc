"""`POST /v1/events`: runtime events from browsers and servers."""

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.intake import Intake
from api.runtime.keyring import admitted
from api.runtime.origin import preflight
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.body import JSON
from api.wire.documentation import PlainRoute, json_body, reading
from api.wire.envelope import EVENTS_PATH
from api.wire.event_batch import Batch, EventReader, RuntimeEventBatch, RuntimeEventBody
from api.wire.problem import Fault, Problem, invalid
from api.wire.shape import FaultShown, Shape
from storage.log.events import EventLines
from storage.tenants.keys import KeyKind
from storage.tenants.sample import Sample

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
    shared, history = runtime(request), _is_history(request)
    kinds = (KeyKind.WRITE,) if history else (KeyKind.PUBLIC, KeyKind.WRITE)
    caller = await admitted(shared.keyring, request, *kinds, query=True)
    intake = Intake(shared=shared, caller=caller, history=history)
    try:
        return await _received(request, intake)
    except Problem as problem:
        intake.refuse(problem)
        raise


async def _received(request: Request, intake: Intake) -> Response:
    batch = await intake.read(request, _read, media=(JSON, "text/plain"))
    if isinstance(batch, EventLines):
        accepted, late = len(batch.occurred_at), await intake.store_lines(batch)
        return answer({"accepted": accepted, "late": late, "rejected": []}, status=202)
    intake.count(batch)
    if not batch.events and not batch.sampled_out:
        raise invalid(batch.faults)
    late = await intake.store(batch)
    return answer(_receipt(batch, late=late, sample=intake.caller.sample), status=202)


def _read(reader: EventReader, raw: bytes) -> EventLines | Batch:
    lines = reader.lines(raw)
    return reader.batch(raw) if lines is None else lines


def _receipt(batch: Batch, *, late: int, sample: Sample | None) -> dict[str, object]:
    receipt: dict[str, object] = {
        "accepted": len(batch.events),
        "late": late,
        "rejected": [
            {"index": event.index, "errors": [fault.document() for fault in event.faults]}
            for event in batch.rejected
        ],
    }
    if batch.sampled_out:
        receipt["sampled_out"] = batch.sampled_out
    if sample is not None:
        receipt["sampling"] = sample.document()
    if batch.ignored:
        receipt["ignored"] = batch.ignored_names
    return receipt


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
