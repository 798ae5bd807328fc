"""Static graphs: the routes of a deployable and the files that their code is reachable from."""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, select, update
from sqlalchemy.dialects.postgresql import insert

from storage.refusal import Missing
from storage.tables import graphs, projects


@dataclass(frozen=True, kw_only=True)
class StoredGraph:
    """A graph as it was uploaded; `created` tells a new one from the same document again."""

    graph_id: str
    document: dict[str, Any]
    route_count: int
    uploaded_at: datetime
    created: bool = False

    @property
    def patterns(self) -> list[str]:
        """The paths of its routes."""
        return [route["path"] for route in self.document["routes"]]


def document_digest(document: object) -> bytes:
    """Returns the SHA-256 of a JSON document, whatever the order of its members."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).digest()


def store_graph(
    connection: Connection, project_id: int, document: Mapping[str, Any]
) -> StoredGraph:
    """Stores a graph and makes it the project's current one.

    Args:
        connection: In a transaction.
        project_id: The project.
        document: Checked by the caller: `schema_version` and `routes` with a `path` each.
    """
    inserted = connection.execute(
        insert(graphs)
        .values(
            graph_id=f"gr_{secrets.token_hex(10)}",
            project_id=project_id,
            digest=document_digest(document),
            document=document,
            route_count=len(document["routes"]),
            uploaded_at=func.clock_timestamp(),
        )
        .on_conflict_do_nothing(index_elements=["project_id", "digest"])
        .returning(graphs.c.graph_id)
    ).scalar_one_or_none()
    row = connection.execute(
        select(graphs).where(
            graphs.c.project_id == project_id, graphs.c.digest == document_digest(document)
        )
    ).one()
    connection.execute(
        update(projects)
        .where(projects.c.project_id == project_id)
        .values(current_graph_id=row.graph_id)
    )
    return _graph(row, created=inserted is not None)


def _graph(row: Row[Any], *, created: bool = False) -> StoredGraph:
    return StoredGraph(
        graph_id=row.graph_id,
        document=row.document,
        route_count=row.route_count,
        uploaded_at=row.uploaded_at,
        created=created,
    )


def read_graph(connection: Connection, project_id: int, graph_id: str) -> StoredGraph:
    """Returns one graph of a project.

    Raises:
        Missing: The project has no such graph.
    """
    row = connection.execute(
        select(graphs).where(graphs.c.project_id == project_id, graphs.c.graph_id == graph_id)
    ).one_or_none()
    if row is None:
        raise Missing("unknown_graph", "there is no such graph")
    return _graph(row)


def current_graph(connection: Connection, project_id: int) -> StoredGraph | None:
    """Returns the project's current graph, if it ever had one."""
    row = connection.execute(
        select(graphs)
        .join(projects, projects.c.current_graph_id == graphs.c.graph_id)
        .where(projects.c.project_id == project_id)
    ).one_or_none()
    return None if row is None else _graph(row)


def routes_reaching(document: Mapping[str, Any], files: Iterable[str]) -> set[str]:
    """Returns the routes of a graph whose code is reachable from one of the files."""
    changed = set(files)
    return {route["path"] for route in document["routes"] if changed.intersection(_files(route))}


def _files(route: Mapping[str, Any]) -> list[str]:
    named = route.get("files", [])
    return [*named, route["file"]] if "file" in route else named
