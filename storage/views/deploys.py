"""The deploys of a project as they are listed, the newest first."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, select, tuple_

from storage.experiments.deploys import NOT_WITHDRAWN, deploy_record
from storage.postgres.refusal import Missing
from storage.schema.tables import deploys

_PLACE = (deploys.c.deployed_at, deploys.c.recorded_at, deploys.c.deploy_id)
NEWEST_FIRST = tuple(column.desc() for column in _PLACE)


def read_deploy(connection: Connection, project_id: int, deploy_id: str) -> dict[str, Any]:
    """Returns a deploy of a project as the API shows it.

    Raises:
        Missing: The project has no such deploy.
    """
    row = connection.execute(
        select(deploys).where(
            deploys.c.project_id == project_id, deploys.c.deploy_id == deploy_id, NOT_WITHDRAWN
        )
    ).one_or_none()
    if row is None:
        raise Missing("unknown_deploy", "there is no such deploy")
    return deploy_record(row)


def list_deploys(
    connection: Connection,
    project_id: int,
    *,
    environment: str | None,
    limit: int,
    before: str | None = None,
) -> list[dict[str, Any]]:
    """Returns a project's deploys, the newest first.

    Args:
        environment: Of this environment; None for all.

    Raises:
        Missing: The project has no deploy `before`.
    """
    d = deploys.c
    conditions = [d.project_id == project_id, NOT_WITHDRAWN]
    if environment is not None:
        conditions.append(d.environment == environment)
    if before is not None:
        conditions.append(listed_after(connection, project_id, before))
    rows = connection.execute(
        select(deploys).where(*conditions).order_by(*NEWEST_FIRST).limit(limit)
    )
    return [deploy_record(row) for row in rows]


def listed_after(connection: Connection, project_id: int, deploy_id: str) -> ColumnElement[bool]:
    """Returns the condition that a deploy stands after another in a list, the newest first."""
    place = connection.execute(
        select(*_PLACE).where(deploys.c.project_id == project_id, deploys.c.deploy_id == deploy_id)
    ).one_or_none()
    if place is None:
        raise Missing("unknown_deploy", "there is no such deploy")
    return tuple_(*_PLACE) < tuple(place)
