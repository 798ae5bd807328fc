"""Assets: the files that pages load, under names that change with their content."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from api.wire.problem import Problem

_FOLDER = Path(__file__).with_name("static")
_MEDIA: Mapping[str, str] = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}


@dataclass(frozen=True, kw_only=True)
class Asset:
    """A file as it is served."""

    content: bytes
    media: str
    digest: str


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(
        content=content, media=_MEDIA[path.suffix], digest=hashlib.sha256(content).hexdigest()[:16]
    )


_ASSETS: Mapping[str, Asset] = {
    path.name: _read(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _MEDIA
}
# Version of a page's files: an open page of another version must be loaded anew.
VERSION = hashlib.sha256("".join(asset.digest for asset in _ASSETS.values()).encode()).hexdigest()[
    :16
]


def asset_path(name: str) -> str:
    """Returns where a file is served; its content there never changes."""
    return f"/dashboard/static/{_ASSETS[name].digest}/{name}"


async def get_asset(request: Request) -> Response:
    """Return a file."""
    asset = _ASSETS.get(request.path_params["name"])
    if asset is None or request.path_params["digest"] != asset.digest:
        raise Problem("not_found", "there is no such file")
    etag = f'"{asset.digest}"'
    headers = {"ETag": etag, "Cache-Control": "public, max-age=31536000, immutable"}
    if request.headers.get("If-None-Match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media, headers=headers)
