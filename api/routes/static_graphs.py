"""`POST /v1/static-graphs`: the routes of a deployable, as its parser found them."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends
from msgspec import Meta, Struct, ValidationError, convert
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.caller import Writer
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.body import MEBIBYTE, apart, body_of
from api.wire.documentation import json_body, reading
from api.wire.shape import LongList, RoutePattern, Shape
from storage.experiments.graphs import Graph, StoredGraph, store_graph

router = APIRouter(tags=["deploys"])

GRAPH_BYTES = 16 * MEBIBYTE
FilePath = Annotated[str, Field(min_length=1, max_length=4096)]


class GraphRoute(BaseModel):
    """A route; members that are not named here are kept."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    path: RoutePattern
    method: str | None = None
    kind: str | None = None
    files: LongList[FilePath] = Field(
        default=[], description="Repository paths that the route's code is reachable from."
    )
    file: FilePath = Field(default="", description="The same, of one file.")


_Path = Annotated[str, Meta(min_length=1, max_length=4096)]


class _PlainRoute(Struct, gc=False):
    """A route in which no member breaks a rule."""

    path: Annotated[str, Meta(min_length=1, max_length=512)]
    method: str | None = None
    kind: str | None = None
    files: list[_Path] = []
    file: _Path = ""


class _PlainGraph(Struct, gc=False):
    """A graph in which no member breaks a rule: found so in a tenth of the time."""

    schema_version: Annotated[str, Meta(min_length=1, max_length=64)] | int
    routes: list[_PlainRoute]


def _is_plain(document: object) -> bool:
    try:
        graph = convert(document, _PlainGraph)
    except ValidationError:
        return False
    distinct = {(route.path, route.method, route.kind) for route in graph.routes}
    return len(distinct) == len(graph.routes)


class StaticGraph(BaseModel):
    """A static graph; members that are not named here, at any level, are handed back unchanged."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    schema_version: Annotated[str, Field(min_length=1, max_length=64)] | int
    routes: LongList[GraphRoute]
    _document: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The graph as it was sent."""
        return self._document

    @field_validator("routes")
    @classmethod
    def _unique(cls, routes: list[GraphRoute]) -> list[GraphRoute]:
        first_index: dict[tuple[str, str | None, str | None], int] = {}
        for index, route in enumerate(routes):
            first = first_index.setdefault((route.path, route.method, route.kind), index)
            if first != index:
                raise PydanticCustomError(
                    "duplicate_route",
                    "routes {first} and {index} have the same path, method and kind",
                    {"first": first, "index": index},
                )
        return routes

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, value: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        # The slower way is for who asks what is wrong.
        graph = cls.model_construct() if _is_plain(value) else handler(value)
        if isinstance(value, dict):
            graph._document = value  # noqa: SLF001 - our own
        return graph


class GraphReceipt(Shape):
    """A stored graph."""

    graph_id: str
    schema_version: str | int
    route_count: int
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
    stored = await runtime(request).store.run(_storing(caller.project_id, wanted))
    return answer(
        {
            "graph_id": stored.graph_id,
            "schema_version": wanted.schema_version,
            "route_count": stored.route_count,
            "uploaded_at": stored.uploaded_at,
            "current": True,
        },
        status=201 if stored.created else 200,
    )


def _storing(project_id: int, graph: Graph) -> Callable[[Connection], StoredGraph]:
    return lambda connection: store_graph(connection, project_id, graph)
