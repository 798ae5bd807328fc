"""Static graphs: the routes of a deployable and the files that their code is reachable from."""

import hashlib
import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import msgspec
from sqlalchemy import JSON, Connection, Text, bindparam, cast, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of
from storage.schema.tables import graphs, projects

# A piece of a document that is hashed at once: the interpreter's lock is held no longer.
_SLICE = 500
_LEVELS = 4
# Where parsers write the version of their form, and the path of a route.
_VERSIONS = ("schema_version", "schemaVersion", "version")
_PATHS = ("path", "route", "pattern")
_LONGEST_PATH = 512


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A graph on its way into the store: its text, and the digest that identifies it."""

    text: str
    digest: bytes
    schema_version: object
    route_count: int
    # By their place, with the reason.
    not_used: Sequence[tuple[int, str]]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Returns the graph of a document whose `routes` the caller has seen to be a list."""
        versions = [document[name] for name in _VERSIONS if name in document]
        return cls(
            text=msgspec.json.encode(document).decode(),
            digest=document_digest(document),
            schema_version=versions[0] if versions else None,
            route_count=len(document["routes"]),
            not_used=_not_used(document["routes"]),
        )


def _not_used(routes: Sequence[object]) -> list[tuple[int, str]]:
    """Returns the routes that `_USED_ROUTES` leaves out, and why."""
    reasons: list[tuple[int, str]] = []
    first: dict[object, int] = {}
    for place, route in enumerate(routes):
        path = _path_of(route)
        if path is None:
            reasons.append((place, f"it has no {', '.join(_PATHS[:-1])} or {_PATHS[-1]}"))
        elif not 1 <= len(path) <= _LONGEST_PATH:
            reasons.append((place, f"its path has not 1 to {_LONGEST_PATH} characters"))
        elif (known := first.setdefault((path, *_manner_of(route)), place)) != place:
            reasons.append((place, f"it has the path, method and kind of /routes/{known}"))
    return reasons


def _path_of(route: object) -> str | None:
    if isinstance(route, str):
        return route
    members = route if isinstance(route, dict) else {}
    return next((members[name] for name in _PATHS if isinstance(members.get(name), str)), None)


def _manner_of(route: object) -> Sequence[str | None]:
    members = route if isinstance(route, dict) else {}
    return [
        value if isinstance(value := members.get(name), str) else None
        for name in ("method", "kind")
    ]


@dataclass(frozen=True, kw_only=True)
class StoredGraph:
    """A graph that is stored; `created` tells a new graph from the same document again."""

    graph_id: str
    route_count: int
    uploaded_at: datetime
    created: bool = False


def document_digest(document: object) -> bytes:
    """Returns the SHA-256 of a JSON document; the order of members does not matter."""
    digest = hashlib.sha256()
    for piece in _canonical(document, levels=_LEVELS):
        digest.update(piece.encode())
    return digest.digest()


def _canonical(document: object, *, levels: int) -> Iterator[str]:
    """Yields the document as JSON with sorted members, no spaces, and ASCII alone."""
    if isinstance(document, dict) and levels:
        opening = "{"
        for name in sorted(document):
            yield f"{opening}{_dumped(name)}:"
            yield from _canonical(document[name], levels=levels - 1)
            opening = ","
        yield "}" if document else "{}"
    elif isinstance(document, list) and len(document) > _SLICE:
        opening = "["
        for begin in range(0, len(document), _SLICE):
            yield opening + _dumped(document[begin : begin + _SLICE])[1:-1]
            opening = ","
        yield "]"
    else:
        yield _dumped(document)


def _dumped(document: object) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


_HEAD = (graphs.c.graph_id, graphs.c.route_count, graphs.c.uploaded_at)


def store_graph(connection: Connection, project_id: int, graph: Graph) -> StoredGraph:
    """Stores a graph and makes it the project's current graph."""
    inserted = connection.execute(
        insert(graphs)
        .values(
            graph_id=f"gr_{secrets.token_hex(10)}",
            project_id=project_id,
            digest=graph.digest,
            document=cast(bindparam("text", graph.text, Text), JSON),
            route_count=graph.route_count,
            uploaded_at=func.clock_timestamp(),
        )
        .on_conflict_do_nothing(index_elements=["project_id", "digest"])
        .returning(graphs.c.graph_id)
    ).scalar_one_or_none()
    row = connection.execute(
        select(*_HEAD).where(graphs.c.project_id == project_id, graphs.c.digest == graph.digest)
    ).one()
    connection.execute(
        update(projects)
        .where(projects.c.project_id == project_id)
        .values(current_graph_id=row.graph_id)
    )
    return value_of(StoredGraph, row, created=inserted is not None)


def graph_text(connection: Connection, project_id: int, graph_id: str) -> str:
    """Returns a graph of a project as JSON text: no reader here needs it parsed."""
    head = connection.execute(
        select(cast(graphs.c.document, Text)).where(
            graphs.c.project_id == project_id, graphs.c.graph_id == graph_id
        )
    ).scalar_one_or_none()
    if head is None:
        raise Missing("unknown_graph", "there is no such graph")
    return head


def _member(name: str) -> str:
    return f"CASE json_typeof(route -> '{name}') WHEN 'string' THEN route ->> '{name}' END"


# The routes of the graphs that a statement names, each once, those without a path left out. The
# store reads its documents itself: parsing a graph would hold up everything else in a process.
_USED_ROUTES = f"""(
SELECT DISTINCT ON (project_id, graph_id, path, method, kind) graph_id, place, path, route
FROM (
    SELECT project_id, graph_id, place, route,
        CASE json_typeof(route)
            WHEN 'string' THEN route #>> CAST(ARRAY[] AS text[])
            ELSE coalesce({", ".join(map(_member, _PATHS))})
        END AS path,
        {_member("method")} AS method,
        {_member("kind")} AS kind
    FROM graphs, json_array_elements(document -> 'routes') WITH ORDINALITY AS _ (route, place)
    WHERE {{graphs}}
) AS r
WHERE char_length(path) BETWEEN 1 AND {_LONGEST_PATH}
ORDER BY project_id, graph_id, path, method, kind, place
) AS used"""

_PATTERNS = text(
    "SELECT path FROM "
    + _USED_ROUTES.format(graphs="project_id = :project_id AND graph_id = :graph_id")
    + " ORDER BY place"
)

_REACHING = text(f"""
SELECT DISTINCT path
FROM {_USED_ROUTES.format(graphs="project_id = :project_id AND graph_id = ANY(:graph_ids)")}
WHERE route ->> 'file' = ANY(:files) OR EXISTS (
    SELECT FROM json_array_elements_text(
        CASE json_typeof(route -> 'files') WHEN 'array' THEN route -> 'files' ELSE '[]' END
    ) AS file
    WHERE file = ANY(:files)
)
""")


def graph_patterns(connection: Connection, project_id: int, graph_id: str) -> list[str]:
    """Returns the paths of a graph's routes in their order, none of an unknown graph."""
    bound = {"project_id": project_id, "graph_id": graph_id}
    return list(connection.execute(_PATTERNS, bound).scalars())


def current_graph_id(connection: Connection, project_id: int) -> str | None:
    """Returns the identifier of the project's current graph, if it ever had a graph."""
    return connection.execute(
        select(projects.c.current_graph_id).where(projects.c.project_id == project_id)
    ).scalar_one_or_none()


def routes_reaching(
    connection: Connection, project_id: int, graph_ids: Sequence[str], files: Collection[str]
) -> list[str]:
    """Returns the routes, sorted, whose code in any of the graphs is reachable from a file."""
    paths = connection.execute(
        _REACHING, {"project_id": project_id, "graph_ids": list(graph_ids), "files": list(files)}
    )
    # By code point, as Python sorts: the database may collate.
    return sorted(paths.scalars())
