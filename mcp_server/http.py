"""The MCP server over streamable HTTP, in front of the application whose endpoints it asks."""

import json
from collections.abc import AsyncGenerator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx2
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST, PARSE_ERROR, jsonrpc_message_adapter
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_server.address import Address
from mcp_server.reward_api import RewardApi
from mcp_server.server import reward_server

PATH = "/mcp"
# Messages name no address that a caller does not know.
_UNKNOWN_ADDRESS = "http://service"


class CallersApi(RewardApi):
    """The reward endpoints of the application itself, with the key of each tool's caller."""

    def __init__(self, application: ASGIApp) -> None:
        super().__init__(Address(url=_UNKNOWN_ADDRESS, key="-"))
        self._application = application

    def of(self, request: Request | None) -> RewardApi:
        """Returns the endpoints as the caller of a request may use them."""
        if request is None:
            return self
        state: Mapping[str, Any] = request.scope.get("state", {})

        async def within(scope: Scope, receive: Receive, send: Send) -> None:
            # State that the server made at its start, which a request of ours would lack.
            await self._application({**scope, "state": {**state}}, receive, send)

        transport = httpx2.ASGITransport(app=within, raise_app_exceptions=False)
        return RewardApi(_address(request), transport=transport)


class HttpServer:
    """The tools behind `/mcp`: stateless, each answer a JSON document.

    Whoever mounts it has checked host and origin, admitted the caller and read the body, which
    comes in a single piece, and opens it before the first request.
    """

    def __init__(self, application: ASGIApp) -> None:
        self._app: Starlette = reward_server(CallersApi(application)).streamable_http_app(
            streamable_http_path=PATH,
            json_response=True,
            stateless_http=True,
            # The API has checked host and origin before it mounts this app.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answers a request."""
        message = await receive()
        if (refusal := _refusal(message.get("body", b""))) is not None:
            await refusal(scope, receive, send)
            return
        read = [message]

        async def again() -> Message:
            return read.pop() if read else await receive()

        await self._app(scope, again, send)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Self]:
        """Opens the state that requests share, for as long as the context lasts."""
        async with self._app.router.lifespan_context(self._app):
            yield self


def _refusal(body: bytes) -> Response | None:
    """Returns the error for a body that is no message; None where the SDK answers.

    A request whose id is none would pass for a notification, whose sender waits for nothing.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return _error(PARSE_ERROR, "the body is not JSON", known=None)
    if not isinstance(message, dict):
        return _error(INVALID_REQUEST, "send a single message, a JSON object", known=None)
    known = message.get("id")
    if "id" in message and (isinstance(known, bool) or not isinstance(known, str | int)):
        return _error(INVALID_REQUEST, "id must be a string or a whole number", known=None)
    try:
        jsonrpc_message_adapter.validate_python(message, by_name=False)
    except ValidationError:
        return _error(INVALID_REQUEST, "this is no message of JSON-RPC 2.0", known=known)
    return None


def _error(code: int, message: str, *, known: str | int | None) -> Response:
    error = {"code": code, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": known, "error": error}, status_code=400)


def _address(request: Request) -> Address:
    """The address as the caller knows it, with the caller's key."""
    bearer = request.headers.get("Authorization", "").partition(" ")[2].strip()
    key = request.headers.get("X-Service-Project-Key", bearer)
    try:
        return Address(url=str(request.base_url).rstrip("/"), key=key)
    except ValueError:
        return Address(url=_UNKNOWN_ADDRESS, key=key)
