"""Origins: which pages may call the paths that browsers call, and under which host."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from api.runtime.keyring import Caller
from api.runtime.settings import ApiSettings
from api.runtime.state import runtime
from api.wire.problem import Problem
from storage.tenants.keys import is_well_formed

_PREFLIGHT = {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": (
        "X-Service-Project-Key, Content-Type, Content-Encoding, Authorization, If-None-Match"
    ),
    "Access-Control-Max-Age": "86400",
    "Allow": "POST, OPTIONS",
}

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")


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


def require_origin(request: Request, caller: Caller) -> None:
    """Refuses a browser's page that the project does not name.

    Raises:
        Problem: The page's origin is not among the project's.
    """
    allowed = caller.settings.allowed_origins
    origin = request.headers.get("Origin")
    if origin is None or not allowed or "*" in allowed:
        return
    if origin.lower() not in {entry.rstrip("/").lower() for entry in allowed}:
        request.state.origin_allowed = False
        raise Problem("origin_not_allowed", "the project's allowed_origins do not name this origin")


async def preflight(request: Request) -> Response:
    """Answers a browser that asks before it posts; it can show a key in the address alone."""
    key = request.query_params.get("key", "")
    caller = await runtime(request).keyring.caller(key) if is_well_formed(key) else None
    if caller is not None:
        require_origin(request, caller)
    return Response(status_code=204, headers=_PREFLIGHT)
