"""`/sdk.js` and the programs of route graphs: scripts that pages and builds load, with no key."""

import gzip
import re
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.wire.answer import etag, is_known
from api.wire.documentation import PlainRoute, reading

router = APIRouter(route_class=PlainRoute, tags=["scripts"])

# The scripts are packages of their own, whose files a wheel has in this folder.
_INSTALLED = Path(__file__).parent / "static"
_PACKAGES = Path(__file__).parents[2] / "packages"
# A new version reaches everybody within the hour, and nobody waits for it.
_CACHED = "public, max-age=3600, stale-while-revalidate=86400"


class JavaScript(Response):
    """A script."""

    media_type = "text/javascript"


class Python(Response):
    """A program in Python."""

    media_type = "text/x-python"


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script as it is sent, plain and compressed, each with its tag."""

    name: str
    summary: str
    description: str
    plain: bytes
    kind: type[Response] = JavaScript
    zipped: bytes = field(init=False)
    tag: str = field(init=False)

    def __post_init__(self) -> None:
        # Without a time in it: the same bytes from every worker.
        object.__setattr__(self, "zipped", gzip.compress(self.plain, mtime=0))
        object.__setattr__(self, "tag", etag(self.plain))

    async def answer(self, request: Request) -> Response:
        """Returns the script as the request can read it, or that it has it already."""
        headers = {
            "ETag": self.tag,
            "Cache-Control": _CACHED,
            "Vary": "Accept-Encoding",
            # Pages of any origin load it, also with `integrity`, and isolated ones.
            "Access-Control-Allow-Origin": "*",
            "Cross-Origin-Resource-Policy": "cross-origin",
            "X-Content-Type-Options": "nosniff",
        }
        zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        if zipped:
            headers |= {"Content-Encoding": "gzip", "ETag": f'{self.tag[:-1]}-gzip"'}
        if is_known(request, headers["ETag"]):
            headers.pop("Content-Encoding", None)
            return Response(status_code=304, headers=headers)
        return self.kind(self.zipped if zipped else self.plain, headers=headers)


def without_comments(source: str) -> str:
    """Returns a script without the lines that are comments, and without indentation.

    A fifth of what every page loads. The source keeps its comments on lines of their own, and
    holds no text of several lines.
    """
    lines = (line.strip() for line in source.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def source_of(name: str) -> str:
    """Returns the text of a script, from its package or as it is installed."""
    package = _PACKAGES / ("browser-sdk" if name == "sdk.js" else "route-graph")
    return ((package if package.is_dir() else _INSTALLED) / name).read_text()


SDK = Script(
    name="sdk.js",
    summary="The browser's SDK",
    description="Answer with the file that sends a page's events.",
    plain=without_comments(source_of("sdk.js")).encode(),
)
ROUTE_GRAPH = Script(
    name="route-graph.mjs",
    summary="The static graph of an app of Next.js, React Router or SvelteKit",
    description="Answer with the program that writes the graph of an app's routes, for Node.",
    plain=source_of("route-graph.mjs").encode(),
)
PYTHON_ROUTE_GRAPH = Script(
    name="route_graph.py",
    summary="The static graph of an app of FastAPI or Django",
    description="Answer with the program that writes the graph of an app's routes, for Python.",
    plain=source_of("route_graph.py").encode(),
    kind=Python,
)
_PARAMETERS = [{"name": "If-None-Match", "in": "header", "schema": {"type": "string"}}]
for _script in (SDK, ROUTE_GRAPH, PYTHON_ROUTE_GRAPH):
    router.add_api_route(
        f"/{_script.name}",
        _script.answer,
        name=f"get_{re.sub(r'[^a-z]', '_', _script.name)}",
        summary=_script.summary,
        description=_script.description,
        response_class=_script.kind,
        responses={304: {"description": "As `If-None-Match` says."}},
        openapi_extra=reading(keys=(), parameters=_PARAMETERS),
    )
