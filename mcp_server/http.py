"""The MCP server over streamable HTTP, in front of the application whose endpoints it asks."""

from collections.abc import AsyncGenerator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx2
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

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
            # What the server made at its start, which a request of ours would lack.
            await self._application({**scope, "state": {**state}}, receive, send)

        transport = httpx2.ASGITransport(app=within, raise_app_exceptions=False)
        return RewardApi(_address(request), transport=transport)


class HttpServer:
    """The tools behind `/mcp`: stateless, each answer one JSON document.

    Whoever mounts it has admitted the caller, and opens it before the first request.

    Args:
        application: Whose reward endpoints the tools ask, within this process.
    """

    def __init__(self, application: ASGIApp) -> None:
        self._app: Starlette = reward_server(CallersApi(application)).streamable_http_app(
            streamable_http_path=PATH,
            json_response=True,
            stateless_http=True,
            # A page of another site can't send the key, which is in a header.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answers a request."""
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Self]:
        """Opens the state that requests share, for as long as the context lasts."""
        async with self._app.router.lifespan_context(self._app):
            yield self


def _address(request: Request) -> Address:
    """The address as the caller knows it, with the caller's key."""
    bearer = request.headers.get("Authorization", "").partition(" ")[2].strip()
    key = request.headers.get("X-Service-Project-Key", bearer)
    try:
        return Address(url=str(request.base_url).rstrip("/"), key=key)
    except ValueError:
        return Address(url=_UNKNOWN_ADDRESS, key=key)
