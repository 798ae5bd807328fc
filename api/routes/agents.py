"""`/mcp`: the reward endpoints as MCP tools over streamable HTTP, for agents with a project key."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from api.runtime.address import public_address
from api.runtime.agents import Agents
from api.runtime.keyring import admitted
from api.runtime.settings import ApiSettings
from api.runtime.state import Runtime, runtime
from api.wire.body import read_body
from api.wire.problem import Problem
from storage.tenants.keys import READING_KINDS

router = APIRouter(tags=["agents"])


# RFC 9728: how an agent without a key learns who gives it a key.
METADATA = "/.well-known/oauth-protected-resource"
_PATH = "/mcp"
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")


class _Forwarded(Response):
    """The answer that the tools send by themselves to a message that was read."""

    def __init__(self, agents: Agents, message: bytes) -> None:
        super().__init__()
        self._agents = agents
        self._message = message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
    return _Forwarded(_agents(request), await read_body(request))


# The standard puts the resource's path behind its own; RFC 9728, 3.1.
@router.get(METADATA, include_in_schema=False)
@router.get(METADATA + _PATH, include_in_schema=False)
async def get_metadata(request: Request) -> Response:
    """Answer the metadata of `/mcp` as a protected resource: its address and the issuer."""
    shared = runtime(request)
    require_own_host(request, shared.settings)
    _agents(request)
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


def _agents(request: Request) -> Agents:
    agents: Agents = request.scope["state"]["agents"]
    if not agents.are_served:
        raise Problem("not_found", "this process serves no tools")
    return agents


def require_own_host(request: Request, settings: ApiSettings) -> None:
    """Refuses a page of another site, also a page whose name was made to resolve to this machine.

    A browser sends the name of its address bar as Host, and no name of another site is an address.

    Raises:
        Problem: The Host is none of ours (421), or the Origin is another site's (403).
    """
    public = urlsplit(settings.public_url or "")
    sent = request.headers.get("Host", "").lower()
    host = _HOST.fullmatch(sent)
    if host is None or not (
        _is_of_this_machine(host[1].strip("[]"))
        or host[1] == public.hostname
        or host[1] in settings.agent_hosts
    ):
        raise Problem(
            "host_not_allowed",
            "the Host is no name of this service: its operator names them in SERVICE_MCP_HOSTS",
        )
    origin = request.headers.get("Origin")
    own = {sent, public.netloc.lower() or sent}
    if origin is not None and urlsplit(origin.lower()).netloc not in own:
        raise Problem("origin_not_allowed", "pages of other sites may not call this")


def _is_of_this_machine(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return True
