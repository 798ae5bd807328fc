"""`POST /v1/traces`: spans of OpenTelemetry, by OTLP: a server's are requests."""

from collections import Counter

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.keyring import Caller
from api.wire.documentation import PlainRoute
from api.wire.event_batch import EventReader
from otlp_receiver.answer import TRACES_PATH
from otlp_receiver.decoding import spans_of
from otlp_receiver.export import Drafts, attributes, documented, export_of, stored
from otlp_receiver.http_route import is_translatable
from otlp_receiver.mapping import NAMES, as_text, span_drafts
from otlp_receiver.requests import requests_of
from storage.tenants.keys import KeyKind

router = APIRouter(route_class=PlainRoute, tags=["events"])

_EXAMPLE = export_of(
    "Spans",
    "spans",
    {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "kind": 2,
        "startTimeUnixNano": "1764150000000000000",
        "endTimeUnixNano": "1764150000182000000",
        "attributes": attributes({"session.id": "s-4711", "http.route": "/checkout/[id]"}),
        "status": {},
    },
)


@router.post(
    TRACES_PATH,
    summary="Send spans of OpenTelemetry (OTLP)",
    **documented(TRACES_PATH, request="ExportTraceServiceRequest", example=_EXAMPLE),
)
async def post_traces(request: Request) -> Response:
    """Store server spans: each as a request with its duration, and as an error where it failed."""
    return await stored(request, _drafts, KeyKind.WRITE, exposing=_event)


def _event(caller: Caller) -> str:
    return caller.settings.span_event


def _drafts(
    reader: EventReader, raw: bytes, *, protobuf: bool, caller: Caller, notes: Counter[str]
) -> Drafts:
    unit = caller.settings.span_unit
    for span in requests_of(
        spans_of(raw, NAMES | {unit, reader.unit or unit}, protobuf=protobuf), notes
    ):
        route = as_text(span.attributes.get("http.route", ""))
        notes["untranslated_spans"] += route != "" and not is_translatable(route)
        yield span_drafts(
            span,
            event=caller.settings.span_event,
            unit=unit,
            named=reader.unit,
            pseudonym=lambda user: reader.pseudonyms.of(caller.project_id, user).hex(),
        )
