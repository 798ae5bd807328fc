"""Answers: JSON as the service sends it, its times in UTC, and entity tags (RFC 9110, 8.8.3)."""

import hashlib
from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response


def answer(
    document: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns a document of plain values and UTC times as an answer."""
    return Response(
        msgspec.json.encode(document),
        status_code=status,
        headers=dict(headers or {}),
        media_type="application/json",
    )


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
