"""The application in a command's own process, for commands that have a store and no address."""

import secrets
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
from starlette.types import Receive, Scope, Send

from api.app import create_app
from api.runtime.keyring import OPERATOR, Operator
from api.runtime.settings import ApiSettings
from cli.operations.actor import command_actor
from cli.operations.store import store_url
from mcp_server.address import Address
from mcp_server.client import Client
from storage.postgres.engine import opened_engine
from storage.tenants.projects import find_project
from storage.views.published import project_of

# As long as a large graph or a busy store may take.
_ANSWER_SECONDS = 600.0


@contextmanager
def application(
    data_dir: Path, *, project: str, experiment_id: str
) -> Generator[AbstractAsyncContextManager[Client]]:
    """Yields the client of an application on the store, in the name of who runs the command.

    Args:
        project: The project's name or number; empty where an experiment names it.

    Raises:
        storage.postgres.refusal.Missing: The store holds no such project or experiment.
    """
    with store_url(data_dir) as url:
        with opened_engine(url) as engine, engine.begin() as connection:
            project_id = (
                find_project(connection, project).project_id
                if project
                else project_of(connection, experiment_id)
            )
        yield _opened(url, Operator(project_id=project_id, actor=command_actor()))


@asynccontextmanager
async def _opened(url: str, operator: Operator) -> AsyncGenerator[Client]:
    # No event is sent: the secret makes no pseudonym that is stored.
    app = create_app(ApiSettings(database_url=url, secret=secrets.token_bytes(32)))
    async with app.router.lifespan_context(app) as state:

        async def within(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "state": {**(state or {})}, OPERATOR: operator}, receive, send)

        transport = httpx2.ASGITransport(app=within, raise_app_exceptions=False)
        address = Address(url="http://service", key="none:in-this-process")
        async with Client(address, answer_seconds=_ANSWER_SECONDS, transport=transport) as client:
            yield client
