"""Projects: a project is a deployable, with keys and settings of its own."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select, text
from sqlalchemy.dialects.postgresql import insert

from storage.postgres.refusal import Conflict, Missing
from storage.postgres.rows import value_of
from storage.schema.tables import projects
from storage.tenants.audit_trail import PROGRAM, Actor, record_action
from storage.tenants.keys import FIRST_KINDS, KeyKind, create_key


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project as it is listed."""

    project_id: int
    name: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class CreatedProject:
    """A new project with its first keys, which are shown this once."""

    project_id: int
    name: str
    keys: dict[KeyKind, str]


def create_project(connection: Connection, name: str, *, by: Actor = PROGRAM) -> CreatedProject:
    """Creates a project with a key of each of the first kinds.

    Raises:
        Conflict: The name is taken.
    """
    project_id = connection.execute(
        insert(projects)
        .values(name=name, created_at=func.clock_timestamp())
        .on_conflict_do_nothing()
        .returning(projects.c.project_id)
    ).scalar_one_or_none()
    if project_id is None:
        raise Conflict(
            "project_exists",
            f"a project named {name!r} exists already: give another name, or make it another key"
            f" with `deploy-reward keys create KIND --project {name}`",
        )
    record_action(connection, project_id, "project_created", by=by, subject=name)
    return CreatedProject(
        project_id=project_id,
        name=name,
        keys={kind: create_key(connection, project_id, kind, by=by) for kind in FIRST_KINDS},
    )


def list_projects(connection: Connection) -> list[Project]:
    """Returns all projects, the oldest first."""
    rows = connection.execute(
        select(projects.c.project_id, projects.c.name, projects.c.created_at).order_by(
            projects.c.project_id
        )
    )
    return [value_of(Project, row) for row in rows]


def lock_project(
    connection: Connection, project_id: int, *, shared: bool = False
) -> dict[str, Any]:
    """Lets a single transaction at a time record deploys and register experiments of a project.

    Args:
        shared: Whether others that ask for that go on too: none of them binds an experiment.

    Returns:
        The project's choices of settings, without defaults.
    """
    return connection.execute(_LOCK[shared], {"id": project_id}).scalar_one()


# Not its key: revenue events refer to it.
_LOCK = {
    shared: text(f"SELECT settings FROM projects WHERE project_id = :id FOR {strength}")
    for shared, strength in ((False, "NO KEY UPDATE"), (True, "SHARE"))
}


def find_project(connection: Connection, name: str) -> Project:
    """Returns the project of that name, or of that number.

    Raises:
        Missing: There is none.
    """
    known = list_projects(connection)
    for project in known:
        if name in (project.name, str(project.project_id)):
            return project
    detail = f"there is no project {name!r}: `deploy-reward project list` names all"
    if not known:
        detail = (
            "the store has no project yet: `deploy-reward project create NAME` makes it;"
            " --data-dir or SERVICE_DATABASE_URL names another store"
        )
    raise Missing("unknown_project", detail)
