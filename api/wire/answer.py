"""Answers: JSON as the service sends it, its times in UTC."""

from collections.abc import Mapping

import msgspec
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
