"""The express lane: plain routes, answered without the router and its layers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from api.wire.documentation import PlainRoute

Failed = Callable[[Request, Exception], Awaitable[Response]]


class Express:
    """Answers plain routes itself and hands everything else on.

    They are asked thousands of times a second, and finding and entering a route costs more than
    what they do, as do the layers that FastAPI puts before its middleware: the lane begins before
    them, with an envelope of its own. FastAPI knows these routes all the same: it documents them,
    and answers their other methods.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        envelope: Callable[[ASGIApp], ASGIApp],
        routes: Iterable[BaseRoute],
        failures: Mapping[type[Exception], Failed],
    ) -> None:
        """Puts the lane before an application.

        Args:
            app: What answers everything else.
            envelope: Wraps the answers of the lane.
            routes: Of these, the plain ones are answered here.
            failures: What becomes of an exception, by its class.
        """
        self._app = app
        self._lane = envelope(self._answer)
        self._failures = failures
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
        route = self._route(scope) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
        else:
            scope["route"] = route
            await self._lane(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await scope["route"].endpoint(request)
        except Exception as error:  # noqa: BLE001 - raised again, where no word is known for it
            response = await self._failed(request, error)
        await response(scope, receive, send)

    def _route(self, scope: Scope) -> PlainRoute | None:
        method, path = scope["method"], scope["path"]
        if (endpoint := self._fixed.get((method, path))) is not None:
            return endpoint
        if (method, path) in self._handed_on:
            return None
        for route in self._patterns:
            if method in (route.methods or ()) and (matched := route.path_regex.match(path)):
                scope["path_params"] = matched.groupdict()
                return route
        return None

    async def _failed(self, request: Request, error: Exception) -> Response:
        for kind in type(error).__mro__:
            if (failed := self._failures.get(kind)) is not None:
                return await failed(request, error)
        raise error
