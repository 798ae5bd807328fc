"""The answers of OTLP, in the encoding of the request: a receipt, or the status of a failure."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.wire.body import JSON, PROTOBUF, is_protobuf
from api.wire.envelope import LOGS_PATH
from api.wire.problem import Problem

TRACES_PATH = "/v1/traces"
# Of a receipt in JSON, the member that counts what is not stored.
REJECTED = {LOGS_PATH: "rejectedLogRecords", TRACES_PATH: "rejectedSpans"}


def receipt(request: Request, *, rejected: int, message: str) -> Response:
    """Returns the answer to an export of which at least some records may be stored.

    Args:
        request: The export.
        rejected: The number of records that are not stored.
        message: Why, or a warning; empty where all is well.
    """
    if is_protobuf(request):
        partial = (b"\x08" + _varint(rejected) if rejected else b"") + (
            _field(2, message.encode()) if message else b""
        )
        return Response(_field(1, partial) if partial else b"", media_type=PROTOBUF)
    document: dict[str, object] = {}
    if rejected or message:
        # Protobuf's JSON has integers of 64 bits as text.
        document["partialSuccess"] = {
            REJECTED[request.url.path]: str(rejected),
            "errorMessage": message,
        }
    return Response(msgspec.json.encode(document), media_type=JSON)


def status_answer(request: Request, problem: Problem) -> Response:
    """Returns the answer to an export of which nothing is stored: a `google.rpc.Status`."""
    message = f"{problem.code}: {problem.detail}"
    if is_protobuf(request):
        # Clients read the field `message` alone.
        body, media = _field(2, message.encode()), PROTOBUF
    else:
        body, media = msgspec.json.encode({"message": message}), JSON
    return Response(body, status_code=problem.status, headers=problem.headers, media_type=media)


def _field(number: int, content: bytes) -> bytes:
    """Returns a field of text, or of a message, as protobuf writes it."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Returns a number as protobuf writes it: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
