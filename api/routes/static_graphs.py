"""`POST /v1/static-graphs`: the routes of a deployable, as its parser reads them."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.caller import Writer
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.body import MEBIBYTE, apart, body_of
from api.wire.documentation import json_body, reading
from api.wire.shape import RoutePattern, Shape
from storage.experiments.graphs import Graph, store_graph

router = APIRouter(tags=["deploys"])

GRAPH_BYTES = 16 * MEBIBYTE
# A receipt stays readable.
_MOST_REASONS = 10
FilePath = Annotated[str, Field(min_length=1, max_length=4096)]


class GraphRoute(BaseModel):
    """A route; members that are not named here are kept. `route` and `pattern` mean `path`."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    path: RoutePattern
    method: str | None = None
    kind: str | None = None
    files: list[FilePath] = Field(
        default=[], description="Repository paths that the route's code is reachable from."
    )
    file: FilePath = Field(default="", description="The same, of a single file.")


def _no_list(version: object) -> object:
    if isinstance(version, list):
        raise PydanticCustomError("list_version", "must be a text, a number or an object")
    return version


class StaticGraph(BaseModel):
    """A static graph: any document with `routes`; it is kept, and handed back unchanged."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    schema_version: Annotated[Any, AfterValidator(_no_list)] = Field(
        default=None, description="The parser's; `schemaVersion` and `version` mean the same."
    )
    routes: list[GraphRoute | str] = Field(
        description="A text is a path. The receipt counts the others, and says why they are not"
        " used."
    )
    _document: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def document(self) -> dict[str, object]:
        """The graph as it was sent."""
        return self._document

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, value: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, dict) or not isinstance(value.get("routes"), list):
            return handler(value)
        if isinstance(value.get("schema_version"), list):
            return handler({**value, "routes": []})
        # The parser is not ours: a route that is not understood is kept, and refuses nothing.
        graph = cls.model_construct()
        graph._document = value  # noqa: SLF001 - our own
        return graph


class UnusedRoute(Shape):
    """A route that takes no part, and why."""

    pointer: str
    detail: str


class UnusedRoutes(Shape):
    """How many routes take no part, and the first of them."""

    count: int
    first: list[UnusedRoute]


class GraphReceipt(Shape):
    """A stored graph."""

    graph_id: str
    schema_version: Any = Field(description="As it was sent.")
    route_count: int
    routes_used: int = Field(description="Those with a path that no route before them has.")
    routes_not_used: UnusedRoutes
    uploaded_at: datetime
    current: bool


EXAMPLE = {
    "schema_version": 1,
    "routes": [{"path": "/checkout/[id]", "files": ["app/checkout/page.tsx", "lib/cart.ts"]}],
}


@router.post(
    "/v1/static-graphs",
    status_code=201,
    summary="Upload the static graph",
    responses={
        200: {"model": GraphReceipt, "description": "The same document had been uploaded before."},
        201: {"model": GraphReceipt},
    },
    openapi_extra=reading(body=json_body(StaticGraph), examples={"a graph": EXAMPLE}),
)
async def post_static_graph(
    request: Request,
    caller: Writer,
    graph: Annotated[StaticGraph, Depends(body_of(StaticGraph, limit=GRAPH_BYTES))],
) -> Response:
    """Replace the project's current graph."""
    wanted = await apart(lambda: Graph.of(graph.document))
    stored = await runtime(request).store.run(
        lambda connection: store_graph(connection, caller.project_id, wanted)
    )
    return answer(
        {
            "graph_id": stored.graph_id,
            "schema_version": wanted.schema_version,
            "route_count": stored.route_count,
            "routes_used": stored.route_count - len(wanted.not_used),
            "routes_not_used": {
                "count": len(wanted.not_used),
                "first": [
                    {"pointer": f"/routes/{place}", "detail": reason}
                    for place, reason in wanted.not_used[:_MOST_REASONS]
                ],
            },
            "uploaded_at": stored.uploaded_at,
            "current": True,
        },
        status=201 if stored.created else 200,
    )
