"""The envelope of every answer: request id, access log, count, and CORS on paths of browsers.

It also holds refusals back that come by the hundred: see `Refusals`.
"""

import asyncio
import logging
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.wire.documentation import PlainRoute
from api.wire.event_batch import EVENTS_PATH
from api.wire.fair_queue import FairQueue
from api.wire.meters import Meters
from api.wire.problem import PROTOCOL_FORMS, Problem, problem_document
from api.wire.unhandled_error import unhandled_error

_access = logging.getLogger("api.access")

Failed = Callable[[Request, Exception], Awaitable[Response]]

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


class _Answer:
    """An answer that is sent with the headers of every answer; its status is 0 until it begins."""

    __slots__ = ("_refusals", "_request", "_send", "status")

    def __init__(self, request: Request, refusals: Refusals, send: Send) -> None:
        self._request, self._refusals, self._send = request, refusals, send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = status = message["status"]
            if 300 <= status < 500 and status != _NOT_MODIFIED:
                await self._refusals.hold_back()
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", self._request.state.request_id.encode()),
                *_headers(self._request, status),
            ]
        await self._send(message)


class Envelope:
    """Answers every request with a request id, and none with an exception's text.

    It stands before all layers of the web framework, and has an express lane: plain routes, which
    are asked thousands of times a second, it answers itself. To find and enter a route by the
    framework costs more than what such a route does. The framework knows these routes all the same:
    it documents them, and answers their other methods.
    """

    def __init__(
        self,
        app: ASGIApp,
        meters: Meters,
        *,
        routes: Iterable[BaseRoute] = (),
        failures: Mapping[type[Exception], Failed] | None = None,
    ) -> None:
        self._app = app
        self._meters = meters
        self._failures = failures or {}
        self._refusals, self._queue = Refusals(), FairQueue()
        # Finding a meter by its labels costs more than counting.
        self._answered: dict[tuple[str, str, int], Counter] = {}
        self._timed: dict[str, Histogram] = {}
        self._fixed: dict[tuple[str, str], PlainRoute] = {}
        self._patterns: list[PlainRoute] = []
        # Addresses that the pattern of another route would match: `/v1/reward/gate`.
        self._handed_on: set[tuple[str, str]] = set()
        for route in routes:
            if isinstance(route, PlainRoute) and "{" in route.path:
                self._patterns.append(route)
            elif isinstance(route, PlainRoute):
                self._fixed |= {(method, route.path): route for method in route.methods or ()}
            elif isinstance(route, Route):
                self._handed_on |= {(method, route.path) for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        state = scope.setdefault("state", {})
        # A tool's request is part of its agent's.
        is_part = "request_id" in state
        state.update(request_id=os.urandom(12).hex(), origin_allowed=True)
        # A request with a body enters the queue, and leaves it when the answer is sent.
        state.update(queue=self._queue, reservation=None)
        answer = _Answer(request, self._refusals, send)
        began = time.perf_counter()
        try:
            await self._answer(request, receive, answer)
        except ClientDisconnect:
            answer.status = answer.status or 499
        except (Exception, asyncio.CancelledError) as error:  # the last resort
            problem = _last_problem(request, error)
            if not answer.status:
                await problem_response(request, problem)(scope, receive, answer)
            # The server stops, and every request has its answer.
            if problem is _STOPPING and is_part:
                raise
        finally:
            if state["reservation"] is not None:
                state["reservation"].release()
            self._record(request, answer.status, time.perf_counter() - began)

    async def _answer(self, request: Request, receive: Receive, send: Send) -> None:
        scope = request.scope
        path: str = scope["path"]
        route = self._plain_route(scope)
        alone = path.startswith(_JSON_ALONE) and path not in PROTOCOL_FORMS
        # Most requests name no types: to look at the bytes costs a tenth of reading the headers.
        names_types = b"accept" in dict(scope["headers"])
        if alone and names_types and not accepts_json(request.headers):
            problem = Problem("not_acceptable", "answers are application/json")
            response = problem_response(request, problem)
        elif route is None:
            await self._app(scope, receive, send)
            return
        else:
            try:
                response = await route.endpoint(request)
            except Exception as error:  # noqa: BLE001 - raised again, where no word is known for it
                response = await self._failed(request, error)
        await response(scope, receive, send)

    def _plain_route(self, scope: Scope) -> PlainRoute | None:
        """Returns the plain route of a request and notes it in the scope; None without."""
        method, path = scope["method"], scope["path"]
        route = self._fixed.get((method, path))
        if route is None and (method, path) not in self._handed_on:
            for pattern in self._patterns:
                matched = pattern.path_regex.match(path) if method in pattern.methods else None
                if matched is not None:
                    route, scope["path_params"] = pattern, matched.groupdict()
                    break
        if route is not None:
            scope["route"] = route
        return route

    async def _failed(self, request: Request, error: Exception) -> Response:
        for kind in type(error).__mro__:
            if (failed := self._failures.get(kind)) is not None:
                return await failed(request, error)
        raise error

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
    """Yields the rest of a rate limit, CORS in answers to browsers, and a connection's end."""
    if status >= 400 and "Expect" in request.headers:
        # The client waits to be asked for its body, and may now send it or not (RFC 9110, 10.1.1).
        yield b"connection", b"close"
    noted = request.scope["state"].get("rate_limit")
    if noted is not None and status != _TOO_MANY:
        yield from noted[1]
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


def problem_response(request: Request, problem: Problem) -> Response:
    """Returns the answer to a failed request, in the form of the protocol that it speaks."""
    form = PROTOCOL_FORMS.get(request.scope["path"])
    if form and request.method == "POST":
        return form(request, problem)
    return Response(
        problem_document(problem, request.state.request_id),
        status_code=problem.status,
        headers=problem.headers,
        media_type="application/problem+json",
    )
