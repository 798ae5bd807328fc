"""`/mcp`: the reward endpoints as MCP tools over streamable HTTP, for agents with a project key."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.runtime.agents import Agents
from api.runtime.keyring import admitted
from api.runtime.state import runtime
from api.wire.problem import Problem
from storage.tenants.keys import READING_KINDS

router = APIRouter(tags=["agents"])


class _Forwarded(Response):
    """The answer that the tools send by themselves."""

    def __init__(self, agents: Agents) -> None:
        super().__init__()
        self._agents = agents

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has the tools answer."""
        await self._agents.forward(scope, receive, send)


# JSON-RPC has a document of its own, which `tools/list` shows.
@router.post("/mcp", include_in_schema=False)
async def post_message(request: Request) -> Response:
    """Answer a message of the Model Context Protocol."""
    shared = runtime(request)
    await admitted(shared.keyring, request, *READING_KINDS, bearer=True)
    if not shared.agents.are_served:
        raise Problem("not_found", "this process serves no tools")
    return _Forwarded(shared.agents)
