"""The answers of OTLP, in the encoding of the request: a receipt, or the status of a failure."""

import msgspec
from google.protobuf.json_format import ParseDict
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.requests import Request
from starlette.responses import Response

from api.wire.body import JSON, PROTOBUF, is_protobuf
from api.wire.envelope import LOGS_PATH
from api.wire.problem import Problem

TRACES_PATH = "/v1/traces"
# Member of a JSON receipt that counts the records that are not stored.
REJECTED = {LOGS_PATH: "rejectedLogRecords", TRACES_PATH: "rejectedSpans"}
_RECEIPTS = {LOGS_PATH: ExportLogsServiceResponse, TRACES_PATH: ExportTraceServiceResponse}

# Seconds: exporters drop a batch at once where they would wait longer than their time-out of ten.
_LONGEST_WAIT = 5


def receipt(request: Request, *, rejected: int, message: str) -> Response:
    """Returns the answer to an export of which at least some records may be stored.

    Args:
        message: Why, or a warning; empty where all is well.
    """
    path = request.url.path
    document: dict[str, object] = {}
    if rejected or message:
        # Protobuf's JSON has integers of 64 bits as text.
        document["partialSuccess"] = {REJECTED[path]: str(rejected), "errorMessage": message}
    if is_protobuf(request):
        content = ParseDict(document, _RECEIPTS[path]()).SerializeToString()
        return Response(content, media_type=PROTOBUF)
    return Response(msgspec.json.encode(document), media_type=JSON)


def status_answer(request: Request, problem: Problem) -> Response:
    """Returns the answer to an export of which nothing is stored: a `google.rpc.Status`."""
    message = f"{problem.code}: {problem.detail}"
    if is_protobuf(request):
        # Clients read the field `message` alone.
        body, media = Status(message=message).SerializeToString(), PROTOBUF
    else:
        body, media = msgspec.json.encode({"message": message}), JSON
    headers = dict(problem.headers or {})
    if "Retry-After" in headers:
        headers["Retry-After"] = str(min(_LONGEST_WAIT, int(headers["Retry-After"])))
    return Response(body, status_code=problem.status, headers=headers, media_type=media)
