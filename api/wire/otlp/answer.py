"""The answers of OTLP, in the encoding of the request: a receipt, or the status of a failure."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

LOGS_PATH = "/v1/logs"
PROTOBUF = "application/x-protobuf"
JSON = "application/json"


def is_protobuf(request: Request) -> bool:
    """Tells whether a request is in protobuf, and so is its answer."""
    kind = request.headers.get("Content-Type", "").partition(";")[0]
    return kind.strip().lower() == PROTOBUF


def receipt(request: Request, *, rejected: int, message: str) -> Response:
    """Returns the answer to an export of which at least some records may be stored.

    Args:
        request: The export.
        rejected: The number of records that are not stored.
        message: Why, or a warning; empty where all is well.
    """
    if is_protobuf(request):
        # Takes a tenth of a second: only those who speak protobuf pay for it.
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (  # noqa: PLC0415
            ExportLogsServiceResponse,
        )

        export = ExportLogsServiceResponse()
        if rejected or message:
            export.partial_success.rejected_log_records = rejected
            export.partial_success.error_message = message
        return Response(export.SerializeToString(), media_type=PROTOBUF)
    document: dict[str, object] = {}
    if rejected or message:
        # Protobuf's JSON has integers of 64 bits as text.
        document["partialSuccess"] = {
            "rejectedLogRecords": str(rejected),
            "errorMessage": message,
        }
    return Response(msgspec.json.encode(document), media_type=JSON)


def status_answer(
    request: Request, message: str, *, status: int, headers: dict[str, str]
) -> Response:
    """Returns the answer to an export of which nothing is stored: a `google.rpc.Status`."""
    if is_protobuf(request):
        text = message.encode()
        # The one field that clients read, `message`: number 2, of a length.
        body, media = b"\x12" + _variable_length(len(text)) + text, PROTOBUF
    else:
        body, media = msgspec.json.encode({"message": message}), JSON
    return Response(body, status_code=status, headers=headers, media_type=media)


def _variable_length(number: int) -> bytes:
    """Returns a number as protobuf writes it: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
