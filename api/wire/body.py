"""Bodies of requests: read up to a limit, decoded, and held against their shape."""

import asyncio
import gc
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pydantic import TypeAdapter
from starlette.requests import Request

from api.wire.fair_queue import Reservation
from api.wire.problem import Problem
from api.wire.shape import validated
from api.wire.strict_json import strict_document

MEBIBYTE = 2**20
JSON = "application/json"
PROTOBUF = "application/x-protobuf"
# Built, a value takes some sixty bytes, and its text as few as two.
BYTES_A_VALUE = 8
_MOST_VALUES = 2**20
# Many a value is a number or a short text.
_VALUE_BYTES = 32
# From this size on, other requests are answered while the body is parsed.
LARGE = 2**17
# How long a body may stall, and from when on it must have come with so many bytes a second.
BODY_SECONDS = 10.0
BODY_RATE = 8 * 1024
# A single large body at a time: so many values take tens of megabytes.
_READER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="body")

ShapeT = TypeVar("ShapeT")
ResultT = TypeVar("ResultT")


def is_protobuf(request: Request) -> bool:
    """Tells whether a request is in protobuf, and so is its answer."""
    kind = request.headers.get("Content-Type", "").partition(";")[0]
    return kind.strip().lower() == PROTOBUF


async def read_body(
    request: Request, *, limit: int = MEBIBYTE, media: tuple[str, ...] = (JSON,), gzip: bool = False
) -> bytes:
    """Returns the body of a request, inflated; its values are counted before they are built.

    Args:
        limit: The most bytes, before and after inflation; `most_values` follows from it.

    Raises:
        Problem: The type or encoding is another (415), or the body is too large, or holds too
            many values (413), or stalled (408).
    """
    _require_type(request, media)
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding != "identity" and not (gzip and encoding == "gzip"):
        detail = "Content-Encoding must be " + ("gzip or left out" if gzip else "left out")
        raise Problem("unsupported_media_type", detail)
    announced = request.headers.get("Content-Length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > limit:
        raise _too_large(limit)
    raw = await _received(request, limit)
    body = _inflated(raw, limit=limit) if encoding == "gzip" else bytes(raw)
    values = values_of(request, body)
    # A member's name is built as well as its value.
    names = 0 if is_protobuf(request) else body.count(b":")
    if values + names > most_values(limit):
        raise Problem("body_too_large", f"a body holds at most {most_values(limit)} values")
    reservation: Reservation = request.scope["state"]["reservation"]
    reservation.hold(values * _VALUE_BYTES + (len(body) if encoding == "gzip" else 0))
    return body


async def _received(request: Request, limit: int) -> bytearray:
    state = request.scope["state"]
    # The project is known by now, where a key named it.
    state["reservation"] = reservation = Reservation(state["queue"], state.get("project_id"))
    loop = asyncio.get_running_loop()
    began, raw = loop.time(), bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS) as deadline:
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > limit:
                    raise _too_large(limit)
                reservation.hold(len(chunk))
                # 30 seconds for the whole would be too few for 16 MiB over a slow line, and far
                # too many for a thousand attackers.
                latest = min(loop.time(), began + len(raw) / BODY_RATE) + BODY_SECONDS
                deadline.reschedule(latest)
    except TimeoutError:
        # The rest of the body would be read as the next request.
        close = {"Connection": "close"}
        detail = "the request's body stalled, or came too slowly"
        raise Problem("request_timeout", detail, headers=close) from None
    return raw


def most_values(limit: int) -> int:
    """Returns how many values a body may hold whose limit is so many bytes."""
    return min(limit // BYTES_A_VALUE, _MOST_VALUES)


def values_of(request: Request, raw: bytes) -> int:
    """Returns how many values a body holds: each comma or bracket, of protobuf the most allowed.

    The elements of an export in protobuf are counted where it is read, a record at a time.
    """
    if is_protobuf(request):
        return len(raw) // BYTES_A_VALUE
    return 1 + raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def body_of(
    shape: type[ShapeT], *, limit: int = MEBIBYTE, optional: bool = False
) -> Callable[[Request], Awaitable[ShapeT]]:
    """Returns the dependency that reads a request's body as a shape.

    Args:
        limit: The most bytes.
        optional: Whether a request without a body is a request with an empty object.
    """
    adapter = TypeAdapter(shape)

    async def body(request: Request) -> ShapeT:
        if optional and not announces_body(request):
            return validated(adapter, {})
        return await shaped(adapter, await read_body(request, limit=limit))

    return body


async def shaped(adapter: TypeAdapter[ShapeT], raw: bytes) -> ShapeT:
    """Returns a body as the shape that it must have.

    Raises:
        Problem: It is not JSON, or breaks a rule.
    """

    def parsed() -> ShapeT:
        return validated(adapter, strict_document(raw))

    return await apart(parsed) if len(raw) > LARGE else parsed()


async def apart(work: Callable[[], ResultT]) -> ResultT:
    """Returns what work on a large body returns; other requests are answered meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(_READER, _uncollected, work)


def _uncollected(work: Callable[[], ResultT]) -> ResultT:
    # A document has no cycles, and each look for some would hold up everybody.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if collecting:
            gc.enable()


def announces_body(request: Request) -> bool:
    """Tells whether a request says that it has a body."""
    return "Transfer-Encoding" in request.headers or request.headers.get(
        "Content-Length", "0"
    ) not in ("", "0")


def _require_type(request: Request, media: tuple[str, ...]) -> None:
    kind, _, parameters = request.headers.get("Content-Type", "").partition(";")
    if kind.strip().lower() not in media:
        detail = f"Content-Type must be {' or '.join(media)}"
        raise Problem("unsupported_media_type", detail)
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "charset" and value.strip('"').lower() not in ("utf-8", "utf8"):
            raise Problem("unsupported_media_type", "the charset must be utf-8")


def _inflated(raw: bytes | bytearray, *, limit: int) -> bytes:
    inflater = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        inflated = inflater.decompress(raw, limit + 1)
    except zlib.error:
        raise Problem("invalid_encoding", "the body is not gzip") from None
    if len(inflated) > limit:
        raise _too_large(limit)
    if not inflater.eof or inflater.unused_data:
        raise Problem("invalid_encoding", "the body is not a single whole gzip member")
    return inflated


def _too_large(limit: int) -> Problem:
    return Problem("body_too_large", f"a body holds at most {limit // MEBIBYTE} MiB")
