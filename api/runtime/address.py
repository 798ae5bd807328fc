"""The address under which users reach us, for links."""

from starlette.requests import Request

from api.runtime.settings import ApiSettings


def public_address(request: Request, settings: ApiSettings) -> str:
    """Returns the configured address, else the request's, without a slash at its end."""
    base = settings.public_url
    if base is None:
        # Not parsed: what a client calls us may be no address at all.
        base = f"{request.scope['scheme']}://{request.headers.get('Host', 'localhost')}"
    return base.rstrip("/")
