"""Origins: which pages may call the paths that browsers call, and under which host."""

from starlette.requests import Request
from starlette.responses import Response

from api.runtime.keyring import Caller
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
