"""`/mcp`: the reward endpoints as MCP tools over streamable HTTP, for agents with a project key."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from api.runtime.address import public_address
from api.runtime.agents import Agents
from api.runtime.keyring import admitted
from api.runtime.origin import require_own_host
from api.runtime.state import Runtime, runtime
from api.wire.body import read_body
from api.wire.problem import Problem
from storage.tenants.keys import READING_KINDS

router = APIRouter(tags=["agents"])


# RFC 9728: how an agent without a key learns who gives it a key.
METADATA = "/.well-known/oauth-protected-resource"
_PATH = "/mcp"


class _Forwarded(Response):
    """The answer that the tools send by themselves to a message that was read."""

    def __init__(self, agents: Agents, message: bytes) -> None:
        super().__init__()
        self._agents = agents
        self._message = message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has the tools answer."""
        read: list[Message] = [{"type": "http.request", "body": self._message, "more_body": False}]

        async def again() -> Message:
            return read.pop() if read else await receive()

        await self._agents.forward(scope, again, send)


# JSON-RPC has a document of its own, which `tools/list` shows.
@router.post(_PATH, include_in_schema=False)
async def post_message(request: Request) -> Response:
    """Answer a message of the Model Context Protocol."""
    shared = runtime(request)
    require_own_host(request, shared.settings)
    await _admit(request, shared)
    _require_tools(shared)
    return _Forwarded(shared.agents, await read_body(request))


# The standard puts the resource's path behind its own; RFC 9728, 3.1.
@router.get(METADATA, include_in_schema=False)
@router.get(METADATA + _PATH, include_in_schema=False)
async def get_metadata(request: Request) -> Response:
    """Answer the metadata of `/mcp` as a protected resource: its address and the issuer."""
    shared = runtime(request)
    require_own_host(request, shared.settings)
    _require_tools(shared)
    issuer = shared.settings.oauth_issuer
    return JSONResponse(
        {
            "resource": public_address(request, shared.settings) + _PATH,
            **({} if issuer is None else {"authorization_servers": [issuer]}),
            "bearer_methods_supported": ["header"],
            "resource_name": "Deploy-Attribution and Reward Service",
        }
    )


async def _admit(request: Request, shared: Runtime) -> None:
    try:
        await admitted(request, *READING_KINDS, bearer=True)
    except Problem as refused:
        if "WWW-Authenticate" in refused.headers:
            metadata = public_address(request, shared.settings) + METADATA
            refused.headers["WWW-Authenticate"] = (
                f'Bearer realm="deploy-reward", resource_metadata="{metadata}"'
            )
        raise


def _require_tools(shared: Runtime) -> None:
    if not shared.agents.are_served:
        raise Problem("not_found", "this process serves no tools")
