"""Agents: the MCP server of this process, opened by the first request to it."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol, Self

from starlette.types import ASGIApp, Receive, Scope, Send


class ToolServer(Protocol):
    """An application of tools, which is opened before its first request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        ...

    def opened(self) -> AbstractAsyncContextManager[Any]:
        """Opens the state that requests share."""
        ...


# Makes the server in front of an application: it is loaded where a first agent calls.
Tools = Callable[[ASGIApp], ToolServer]


class Agents:
    """Forwards requests to the tools, which a task of its own holds open until the process ends.

    Args:
        tools: Makes the server; None where this process has none.
    """

    def __init__(self, tools: Tools | None, application: ASGIApp) -> None:
        self._tools = tools
        self._application = application
        self._opening: asyncio.Future[ToolServer] | None = None
        self._holder: asyncio.Task[None] | None = None
        self._end = asyncio.Event()

    @property
    def are_served(self) -> bool:
        """Whether this process has tools."""
        return self._tools is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the tools, where some agent had called."""
        self._end.set()
        if self._holder is not None:
            with suppress(asyncio.CancelledError):
                await self._holder

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has the tools answer a request."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_future()
            self._holder = asyncio.create_task(self._hold(self._opening))
        server = await asyncio.shield(self._opening)
        await server(scope, receive, send)

    async def _hold(self, opening: asyncio.Future[ToolServer]) -> None:
        assert self._tools is not None  # noqa: S101 - the endpoint asks `are_served` first
        # A task group is entered and left by the same task, and no request lives long enough.
        try:
            server = await asyncio.to_thread(self._tools, self._application)
            async with server.opened():
                opening.set_result(server)
                await self._end.wait()
        except Exception as error:
            if opening.done():
                raise
            self._opening = None
            opening.set_exception(error)
