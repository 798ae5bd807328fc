"""`POST /v1/logs`: log events of OpenTelemetry, by OTLP, as runtime events."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.origin import preflight
from api.wire.documentation import PlainRoute
from api.wire.envelope import LOGS_PATH
from api.wire.event_batch import EventReader
from api.wire.problem import Fault
from otlp_receiver.decoding import records_of
from otlp_receiver.export import Drafts, attributes, documented, export_of, stored
from otlp_receiver.mapping import EVALUATION, NAMES, draft
from storage.tenants.keys import KeyKind

router = APIRouter(route_class=PlainRoute, tags=["events"])

_EXAMPLE = export_of(
    "Logs",
    "logRecords",
    {
        "eventName": "feature_flag.evaluation",
        "attributes": attributes(
            {
                "session.id": "s-4711",
                "feature_flag.key": "one-step",
                "feature_flag.result.value": True,
            }
        ),
    },
)


@router.post(
    LOGS_PATH,
    summary="Send log events of OpenTelemetry (OTLP)",
    **documented(
        LOGS_PATH,
        request="ExportLogsServiceRequest",
        example=_EXAMPLE,
        problems=("origin_not_allowed",),
    ),
)
async def post_logs(request: Request) -> Response:
    """Store log events: evaluated flags as exposures, others as outcomes."""
    kinds = (KeyKind.PUBLIC, KeyKind.WRITE)
    return await stored(request, _drafts, *kinds, exposing=lambda _: EVALUATION)


router.add_api_route(LOGS_PATH, preflight, methods=["OPTIONS"], include_in_schema=False)


def _drafts(reader: EventReader, raw: bytes, *, protobuf: bool, **_: object) -> Drafts:
    for record in records_of(raw, NAMES | {reader.unit or ""}, protobuf=protobuf):
        drafted = draft(record, named=reader.unit)
        yield drafted if isinstance(drafted, Fault) else [drafted]
