"""The envelope of every answer: request id, access log, count, and CORS on paths of browsers.

It also holds refusals back that come by the hundred: see `Refusals`.
"""

import asyncio
import logging
import os
import random
import re
import time
from collections.abc import Iterable

from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.wire.documentation import PlainRoute
from api.wire.fair_queue import FairQueue, Reservation
from api.wire.meters import Meters
from api.wire.problem import PROTOCOL_FORMS, Problem, problem_response
from api.wire.unhandled_error import unhandled_error

_access = logging.getLogger("api.access")

EVENTS_PATH = "/v1/events"
LOGS_PATH = "/v1/logs"
EVALUATION_PATH = "/ofrep/v1/evaluate/flags"
_RANGE = re.compile(r"\s*([\w*+.!#$&^-]+)/([\w*+.!#$&^-]+)\s*(;.*)?", re.ASCII)
_NO_WEIGHT = re.compile(r"\s*q\s*=\s*0(?:\.0{0,3})?\s*", re.ASCII | re.IGNORECASE)
_EXPOSED = b"X-Request-Id, ETag, Retry-After, RateLimit, RateLimit-Policy"
_NOT_MODIFIED, _TOO_MANY = 304, 429
# Refusals that are answered at once, and how many of them may come together.
_AT_ONCE_A_SECOND, _TOGETHER = 500, 50
HELD_BACK_SECONDS = 0.25
# Operations below them answer in JSON alone, but for a protocol that has a form of its own.
_JSON_ALONE = ("/v1/", "/ofrep/v1/")
_STOPPING = Problem(
    "stopping", "the service stopped before it could answer", headers={"Retry-After": "1"}
)


class Refusals:
    """Holds refusals back where they come by the hundred a second, of all clients together.

    To be refused costs a client nothing, and who sends its next request upon each refusal keeps
    the process busy with them, while others' requests wait through many rounds of its loop. A
    redirection counts too: a visitor who has not signed in is sent to the sign-in.
    """

    def __init__(self) -> None:
        self._left = float(_TOGETHER)
        self._counted_at = time.monotonic()

    async def hold_back(self) -> None:
        """Returns at once, or after 1 to 2 `HELD_BACK_SECONDS` where too many were refused."""
        now = time.monotonic()
        self._left += (now - self._counted_at) * _AT_ONCE_A_SECOND
        self._left, self._counted_at = min(self._left, _TOGETHER), now
        if self._left >= 1:
            self._left -= 1
        else:
            # Not all for equally long: those who came together would come together again.
            await asyncio.sleep(HELD_BACK_SECONDS * (1 + random.random()))  # noqa: S311 - no secret


class Envelope:
    """Wraps the application: every answer has a request id, and none an exception's text."""

    def __init__(self, app: ASGIApp, meters: Meters, refusals: Refusals, queue: FairQueue) -> None:
        self._app = app
        self._queue = queue
        self._meters = meters
        self._refusals = refusals
        # Finding a meter by its labels costs more than counting.
        self._answered: dict[tuple[str, str, int], Counter] = {}
        self._timed: dict[str, Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        # A tool's request is part of its agent's, and waits for nothing that the agent's holds.
        is_part = "reservation" in state
        reservation = state.setdefault("reservation", Reservation(self._queue))
        try:
            await self._wrapped(scope, receive, send)
        except asyncio.CancelledError:
            # The server stops, and every request has its answer.
            if is_part:
                raise
        finally:
            if not is_part:
                reservation.release()

    async def _wrapped(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request_id = os.urandom(12).hex()
        scope["state"].update(request_id=request_id, origin_allowed=True)
        stamp = (b"x-request-id", request_id.encode())
        began, status = time.perf_counter(), 0

        async def stamped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if 300 <= status < 500 and status != _NOT_MODIFIED:
                    await self._refusals.hold_back()
                message["headers"] = [
                    *message.get("headers", ()),
                    stamp,
                    *_headers(request, status),
                ]
            await send(message)

        try:
            await self._answer(request, receive, stamped)
        except ClientDisconnect:
            status = status or 499
        except (Exception, asyncio.CancelledError) as error:  # the last resort
            problem = _last_problem(request, error)
            if not status:
                await problem_response(request, problem)(scope, receive, stamped)
            if problem is _STOPPING:
                raise
        finally:
            self._record(request, status, time.perf_counter() - began)

    async def _answer(self, request: Request, receive: Receive, send: Send) -> None:
        path: str = request.scope["path"]
        alone = path.startswith(_JSON_ALONE) and path not in PROTOCOL_FORMS
        # Most requests name no types: to look at the bytes costs a tenth of reading the headers.
        names_types = b"accept" in dict(request.scope["headers"])
        if alone and names_types and not accepts_json(request.headers):
            problem = Problem("not_acceptable", "answers are application/json")
            await problem_response(request, problem)(request.scope, receive, send)
        else:
            await self._app(request.scope, receive, send)

    def _record(self, request: Request, status: int, seconds: float) -> None:
        # The route's pattern: paths can hold anything, a key pasted into the wrong place even.
        route = request.scope.get("route")
        pattern = getattr(route, "path", "-")
        method = request.method if request.method in _METHODS else "-"
        labels = (method, pattern, status)
        answered, timed = self._answered.get(labels), self._timed.get(pattern)
        if answered is None:
            answered = self._answered[labels] = self._meters.requests.labels(*labels)
        if timed is None:
            timed = self._timed[pattern] = self._meters.request_seconds.labels(pattern)
        answered.inc()
        timed.observe(seconds)
        # Thousands a second: successes there, and refusals of a flood, are counted, not logged.
        counted = isinstance(route, PlainRoute) and (status < 400 or status == _TOO_MANY)
        level = logging.DEBUG if counted else logging.INFO
        if _access.isEnabledFor(level):
            request_id = request.state.request_id
            line = "%s %s %d %.1fms %s"
            _access.log(level, line, method, pattern, status, seconds * 1e3, request_id)


def _last_problem(request: Request, error: BaseException) -> Problem:
    """Returns the answer to a request that ended without an answer; a fault of ours is logged."""
    if isinstance(error, Exception):
        return unhandled_error(request, error)
    # The server stops, and has waited for as long as it may.
    return _STOPPING


_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"})


def _headers(request: Request, status: int) -> Iterable[tuple[bytes, bytes]]:
    """Yields the headers of CORS in answers to browsers, and the end of a connection."""
    if status >= 400 and "Expect" in request.headers:
        # The client waits to be asked for its body, and may now send it or not (RFC 9110, 10.1.1).
        yield b"connection", b"close"
    path: str = request.scope["path"]
    if path not in {EVENTS_PATH, LOGS_PATH} and not path.startswith(EVALUATION_PATH):
        return
    yield b"vary", b"Origin"
    origin = request.headers.get("Origin")
    if origin is not None and request.state.origin_allowed:
        yield b"access-control-allow-origin", origin.encode("latin-1")
        yield b"access-control-expose-headers", _EXPOSED


def accepts_json(headers: Headers) -> bool:
    """Tells whether a request's Accept admits `application/json` (RFC 9110, 12.5.1)."""
    accept = ",".join(headers.getlist("Accept"))
    if accept in ("", "*/*", "application/json"):
        return True
    admitted: dict[str, bool] = {}
    for entry in accept.split(","):
        if (match := _RANGE.fullmatch(entry)) is not None:
            kind = f"{match[1]}/{match[2]}".lower()
            parameters = (match[3] or "").split(";")
            admitted[kind] = not any(_NO_WEIGHT.fullmatch(part) for part in parameters)
    # The most specific range decides.
    for kind in ("application/json", "application/*", "*/*"):
        if kind in admitted:
            return admitted[kind]
    return False
