"""The deploys of a project as they are listed, the newest first."""

from sqlalchemy import ColumnElement, Connection, select, tuple_

from storage.experiments.deploy_record import DeployRecord, read_deploys
from storage.experiments.deploys import NOT_WITHDRAWN
from storage.postgres.refusal import Missing
from storage.schema.tables import deploys

_PLACE = (deploys.c.deployed_at, deploys.c.recorded_at, deploys.c.deploy_id)
NEWEST_FIRST = tuple(column.desc() for column in _PLACE)


def read_deploy(connection: Connection, project_id: int, deploy_id: str) -> DeployRecord:
    """Returns a deploy of a project as the API shows it.

    Raises:
        Missing: The project has no such deploy.
    """
    own = (deploys.c.project_id == project_id, deploys.c.deploy_id == deploy_id, NOT_WITHDRAWN)
    if not (matching := read_deploys(connection, select(deploys).where(*own))):
        raise Missing("unknown_deploy", "there is no such deploy")
    return matching[0].record


def list_deploys(
    connection: Connection,
    project_id: int,
    *,
    environment: str | None,
    limit: int,
    before: str | None = None,
) -> list[DeployRecord]:
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
    query = select(deploys).where(*conditions).order_by(*NEWEST_FIRST).limit(limit)
    return [deploy.record for deploy in read_deploys(connection, query)]


def listed_after(connection: Connection, project_id: int, deploy_id: str) -> ColumnElement[bool]:
    """Returns the condition that a deploy stands after another in a list, the newest first."""
    place = connection.execute(
        select(*_PLACE).where(deploys.c.project_id == project_id, deploys.c.deploy_id == deploy_id)
    ).one_or_none()
    if place is None:
        raise Missing("unknown_deploy", "there is no such deploy")
    return tuple_(*_PLACE) < tuple(place)
