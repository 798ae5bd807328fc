"""A real HTTP server that answers as a test asks, and the MCP server in front of it."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult

from mcp_server.address import Address
from mcp_server.reward_api import RewardApi
from mcp_server.server import reward_server

KEY = "rk_Q7hZ2canaryCanaryCanaryCanaryCanary0123456"


class Service(ThreadingHTTPServer):
    """An HTTP server on a free port: answers by path, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.answers: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.requests: list[dict[str, Any]] = []
        self.silent = False
        self.silent_at: set[str] = set()
        self.dripping = False
        self.closing = threading.Event()

    def answers_with(
        self, path: str, body: Any, *, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Answer `path` so from now on; a body that is no text goes out as JSON."""
        text = body if isinstance(body, str) else json.dumps(body)
        self.answers[path] = (status, text.encode(), headers or {})

    def problem(self, path: str, status: int, detail: str, **members: Any) -> None:
        """Answer `path` with an RFC 9457 problem."""
        body = {"type": "about:blank", "title": "-", "status": status, "detail": detail, **members}
        headers = {"Content-Type": "application/problem+json"}
        self.answers_with(path, body, status=status, headers=headers)

    def down(self) -> socket.socket:
        """Stop for good; the socket that is returned keeps everybody else from the port."""
        self.closing.set()
        self.shutdown()
        self.server_close()
        place = socket.socket()
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Bound and not listening: nobody answers on it.
        place.bind(("127.0.0.1", self.server_port))
        return place


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.server.requests.append(
            {
                "method": self.command,
                "path": self.path,
                "key": self.headers.get("X-Service-Project-Key"),
                "body": json.loads(self.rfile.read(length) or b"null"),
            }
        )
        if self.server.silent or self.path in self.server.silent_at:
            self.server.closing.wait(60)
        elif self.server.dripping:
            self.drip()
        else:
            self.answer()

    do_POST = do_GET  # noqa: N815 - the name is http.server's

    def answer(self) -> None:
        status, body, headers = self.server.answers.get(self.path, (404, b"{}", {}))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def drip(self) -> None:
        self.send_response(200)
        self.end_headers()
        while not self.server.closing.wait(0.02):
            try:
                self.wfile.write(b" ")
            except OSError:
                return

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def answering() -> Generator[Service]:
    """The server, in a thread of its own for as long as the context lasts."""
    served = Service()
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        served.closing.set()
        served.shutdown()
        served.server_close()
        thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    with answering() as served:
        yield served


@pytest.fixture
def in_session(service) -> Callable[..., Any]:
    """Runs a coroutine function on a client of the MCP server in front of `service`."""

    def run(
        session: Callable[[Client], Any],
        *,
        url: str = service.url,
        key: str = KEY,
        answer_seconds: float = 5,
        mode: str = "auto",
    ) -> Any:
        async def connected() -> Any:
            api = RewardApi(Address(url=url, key=key), answer_seconds=answer_seconds)
            async with Client(reward_server(api), mode=mode) as client:
                return await session(client)

        return asyncio.run(connected())

    return run


@pytest.fixture
def call(in_session) -> Callable[..., CallToolResult]:
    def called(tool: str, arguments: dict[str, Any] | None = None, **where: Any) -> CallToolResult:
        return in_session(lambda client: client.call_tool(tool, arguments or {}), **where)

    return called
