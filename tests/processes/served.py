"""An application behind a port of its own, which can be stopped, and started again."""

import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.processes.api_process import eventually


@dataclass(kw_only=True)
class Served:
    """An ASGI application, served by a thread of this process."""

    app: ASGIApp
    host: str = "127.0.0.1"
    port: int = 0
    # uvicorn's parser.
    http: Literal["auto", "h11", "httptools"] = "auto"
    _server: uvicorn.Server | None = field(default=None, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Listens on its port: a free port, the first time."""
        config = uvicorn.Config(
            self.app,
            host="127.0.0.1",
            port=self.port,
            http=self.http,
            log_level="warning",
            lifespan="on",
        )
        server = self._server = uvicorn.Server(config)
        thread = self._thread = threading.Thread(target=server.run)
        thread.start()
        eventually(lambda: server.started or not thread.is_alive())
        self.port = server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Ends it, with every connection that waits for nothing."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
            self._server = self._thread = None


@contextmanager
def serving_routes(respond: Callable[[Request], Awaitable[Response]]) -> Generator[str]:
    """The address of a function that answers every request, for as long as the context lasts."""
    route = Route("/{rest:path}", respond, methods=["GET", "POST", "PATCH"])
    with Served(app=Starlette(routes=[route])) as served:
        yield served.url


def address_of(request: Request) -> str:
    """The path and the query of a request, as they were sent."""
    path = request.scope["raw_path"].decode()
    return f"{path}?{request.url.query}" if request.url.query else path
