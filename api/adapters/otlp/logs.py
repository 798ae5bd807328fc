"""`POST /v1/logs`: log events of OpenTelemetry, by OTLP, as runtime events."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.adapters.otlp.answer import LOGS_PATH, receipt
from api.adapters.otlp.json import records_of_json
from api.adapters.otlp.mapping import ATTRIBUTES, EVALUATION, NAMES, Draft, draft
from api.adapters.otlp.protobuf import records_of_protobuf
from api.runtime.intake import Intake
from api.runtime.keyring import admitted
from api.runtime.origin import preflight
from api.runtime.state import runtime
from api.wire.body import JSON, MEBIBYTE, PROTOBUF, is_protobuf, most_values
from api.wire.documentation import PlainRoute, reading
from api.wire.event_batch import MOST_EVENTS, Batch, EventReader, Rejected
from api.wire.problem import Fault, Problem
from storage.tenants.keys import KeyKind

router = APIRouter(route_class=PlainRoute, tags=["events"])

_LIMIT = 4 * MEBIBYTE
# An answer stays readable, whatever was sent.
_MOST_REASONS = 5
_EXAMPLE = {
    "resourceLogs": [
        {
            "resource": {
                "attributes": [
                    {"key": "vcs.ref.head.revision", "value": {"stringValue": "4f2a9c1d"}}
                ]
            },
            "scopeLogs": [
                {
                    "logRecords": [
                        {
                            "eventName": "feature_flag.evaluation",
                            "attributes": [
                                {"key": "session.id", "value": {"stringValue": "s-4711"}},
                                {"key": "feature_flag.key", "value": {"stringValue": "one-step"}},
                                {
                                    "key": "feature_flag.result.value",
                                    "value": {"boolValue": True},
                                },
                            ],
                        }
                    ]
                }
            ],
        }
    ]
}
_EXPORT: dict[str, Any] = {
    "type": "object",
    "description": "OTLP's ExportLogsServiceRequest.",
    "properties": {"resourceLogs": {"type": ["array", "null"], "items": {"type": "object"}}},
}
_RECEIPT: dict[str, Any] = {
    "type": "object",
    "description": "OTLP's ExportLogsServiceResponse.",
    "properties": {
        "partialSuccess": {
            "type": "object",
            "required": ["rejectedLogRecords", "errorMessage"],
            "properties": {
                "rejectedLogRecords": {"type": "string"},
                "errorMessage": {"type": "string"},
            },
        }
    },
}
_BINARY = {"type": "string", "format": "binary"}
_STATUS: dict[str, Any] = {
    "type": "object",
    "description": "OTLP's Status: the `code` of a problem, and its `detail`.",
    "required": ["message"],
    "properties": {"message": {"type": "string"}},
}


@router.post(
    LOGS_PATH,
    summary="Send log events of OpenTelemetry (OTLP)",
    responses={200: {"content": {JSON: {"schema": _RECEIPT}, PROTOBUF: {"schema": _BINARY}}}},
    openapi_extra=reading(
        body={JSON: _EXPORT, PROTOBUF: _BINARY},
        examples={"an evaluated flag": _EXAMPLE},
        keys=("ProjectKey", "Bearer"),
        problems=["invalid_otlp", "invalid_encoding", "origin_not_allowed", "rate_limited"],
        last_wins=True,
        failures={JSON: _STATUS, PROTOBUF: _BINARY},
    ),
)
async def post_logs(request: Request) -> Response:
    """Store log events: evaluated flags as exposures, others as outcomes."""
    shared = runtime(request)
    caller = await admitted(shared.keyring, request, KeyKind.PUBLIC, KeyKind.WRITE, bearer=True)
    intake = Intake(shared=shared, caller=caller)
    try:
        reading = partial(_batch, protobuf=is_protobuf(request))
        batch = await intake.read(request, reading, limit=_LIMIT, media=(JSON, PROTOBUF))
        intake.count(batch)
        await intake.store(batch)
    except Problem as problem:
        intake.refuse(problem)
        raise
    return receipt(request, rejected=len(batch.rejected), message=_message(batch))


router.add_api_route(LOGS_PATH, preflight, methods=["OPTIONS"], include_in_schema=False)


def _batch(reader: EventReader, raw: bytes, *, protobuf: bool) -> Batch:
    """Returns the records of an export as the reader of `POST /v1/events` reads them.

    Raises:
        Problem: The body is no export of logs, or it is too large.
    """
    if protobuf:
        records = records_of_protobuf(raw, NAMES, most_fields=most_values(_LIMIT))
    else:
        records = records_of_json(raw, NAMES)
    whole = Batch()
    drafts: list[tuple[int, Draft]] = []
    for index, record in enumerate(records):
        drafted = draft(record)
        if isinstance(drafted, Fault):
            whole.rejected.append(Rejected(index=index, faults=[drafted]))
        else:
            drafts.append((index, drafted))
    for first in range(0, len(drafts), MOST_EVENTS):
        some = drafts[first : first + MOST_EVENTS]
        events = [event for _, event in some]
        batch = reader.batch(msgspec.json.encode({"events": events}))
        whole.events += batch.events
        whole.sampled_out += batch.sampled_out
        whole.rejected += [
            Rejected(index=some[event.index][0], faults=event.faults) for event in batch.rejected
        ]
    return whole


def _message(batch: Batch) -> str:
    """Returns the reasons of rejections, and warnings about stored records; often empty."""
    reasons = Counter(_reason(event.faults[0]) for event in batch.rejected)
    lines = [f"{count} {reason}" for reason, count in reasons.most_common(_MOST_REASONS)]
    return "; ".join([*lines, *_warnings(batch)])


def _reason(fault: Fault) -> str:
    member = fault.at.rpartition("/")[2]
    name = next(iter(ATTRIBUTES.get(member, ())), member)
    if fault.code != "missing":
        return f"whose {name} is refused: {fault.detail}"
    return f"without {name if fault.detail == 'is required' else fault.detail}"


def _warnings(batch: Batch) -> Iterator[str]:
    lacking = sum(event.event == EVALUATION and event.commit_sha is None for event in batch.events)
    if lacking:
        name = ATTRIBUTES["commit"][0]
        yield f"{lacking} stored without {name}: an evaluation that names no build exposes nobody"
