"""Reach: through which changed files a deploy affects each of its routes."""

from sqlalchemy import Connection, text

from storage.experiments.deploy_record import DeployRecord, changed_files
from storage.experiments.deploys import graph_of_commit

_REACHED = text("""
SELECT DISTINCT route ->> 'path' AS route, file
FROM graphs, json_array_elements(document -> 'routes') AS route,
    LATERAL (
        SELECT route ->> 'file' AS file
        UNION ALL
        SELECT json_array_elements_text(coalesce(route -> 'files', '[]'))
    ) AS reached
WHERE project_id = :project_id AND graph_id = ANY(:graph_ids) AND file = ANY(:files)
""")


def reached_routes(
    connection: Connection, project_id: int, deploy: DeployRecord
) -> dict[str, list[str]]:
    """Returns the affected routes of a deploy in their order, each with the files that reach it.

    Looked up in the deploy's own graph and in its base's; of a route that only a graph in between
    knew there are no files.
    """
    files: dict[str, list[str]] = {route: [] for route in deploy.affected_routes}
    before = graph_of_commit(connection, project_id, deploy.environment, deploy.base_commit)
    bound = {
        "project_id": project_id,
        "graph_ids": [graph_id for graph_id in (deploy.graph_id, before) if graph_id is not None],
        "files": changed_files(deploy.diff),
    }
    for row in connection.execute(_REACHED, bound):
        if row.route in files:
            files[row.route].append(row.file)
    return {route: sorted(files) for route, files in files.items()}
