"""Entity tags: whether a client already has an answer (RFC 9110, 8.8.3 and 13.1.2)."""

import hashlib

from starlette.requests import Request


def etag(content: bytes) -> str:
    """Returns the strong tag of an answer's content."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def is_known(request: Request, tag: str) -> bool:
    """Tells whether the client names the tag in `If-None-Match`."""
    for value in request.headers.getlist("If-None-Match"):
        for known in value.split(","):
            if known.strip().removeprefix("W/") in (tag, "*"):
                return True
    return False
