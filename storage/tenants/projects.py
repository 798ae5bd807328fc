"""Projects and their keys: made, listed and revoked; a project is a deployable."""

import secrets
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row, func, select, update
from sqlalchemy.dialects.postgresql import insert

from storage.postgres.refusal import Conflict, Missing
from storage.postgres.rows import value_of
from storage.schema.tables import keys, projects
from storage.tenants.audit_trail import PROGRAM, Actor, Change, record_action
from storage.tenants.keys import BASE62, RANDOM, KeyKind, checksum, is_well_formed, key_digest

LONGEST_LABEL = 64
_SHOWN = (
    keys.c.display,
    keys.c.kind,
    keys.c.created_at,
    keys.c.revoked_at,
    keys.c.last_used_at,
    keys.c.label,
)
_PREFIXES = {
    KeyKind.WRITE: "wk_",
    KeyKind.PUBLIC: "pk_",
    KeyKind.PROJECT: "rk_",
    KeyKind.READ: "ro_",
}
# A new project gets a key of each; a key that only reads is made for whoever asks for it.
FIRST_KINDS = (KeyKind.WRITE, KeyKind.PUBLIC, KeyKind.PROJECT)


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


@dataclass(frozen=True, kw_only=True)
class KeyRecord:
    """The stored part of a key: enough to recognise it, not enough to use it.

    Attributes:
        display: Its first characters.
        last_used_at: When its use was last noted; later uses than `USE_NOTED_EVERY` and a minute
            after that would have been noted too. None where it was never used.
        label: Who or what holds it, in the owner's words; None for none.
    """

    display: str
    kind: KeyKind
    created_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None
    label: str | None


def new_key(kind: KeyKind) -> str:
    """Returns a fresh key: prefix, 34 random characters, and a CRC32 of both in base 62."""
    body = _PREFIXES[kind] + "".join(secrets.choice(BASE62) for _ in range(RANDOM))
    return body + checksum(body)


def create_key(
    connection: Connection,
    project_id: int,
    kind: KeyKind,
    *,
    label: str | None = None,
    by: Actor = PROGRAM,
) -> str:
    """Creates a key and returns it this once; its label has at most `LONGEST_LABEL` characters."""
    key = new_key(kind)
    connection.execute(
        keys.insert().values(
            digest=key_digest(key),
            project_id=project_id,
            kind=kind.value,
            display=key[:8],
            created_at=func.clock_timestamp(),
            label=label or None,
        )
    )
    record_action(
        connection,
        project_id,
        "key_created",
        by=by,
        subject=key[:8],
        changes=_first_values(kind=kind.value, label=label or None),
    )
    return key


def _first_values(**members: str | None) -> list[Change]:
    return [
        Change(member=name, before=None, after=value)
        for name, value in members.items()
        if value is not None
    ]


def list_keys(connection: Connection, project_id: int) -> list[KeyRecord]:
    """Returns a project's keys, the oldest first, revoked ones included."""
    rows = connection.execute(
        select(*_SHOWN)
        .where(keys.c.project_id == project_id)
        .order_by(keys.c.created_at, keys.c.display)
    )
    return [_record(row) for row in rows]


def revoke_key(
    connection: Connection, project_id: int, key: str, *, by: Actor = PROGRAM
) -> KeyRecord:
    """Ends a key, named whole or by a beginning that only a single live key has.

    Raises:
        Missing: No live key of the project, or several, are meant.
    """
    live = (keys.c.project_id == project_id, keys.c.revoked_at.is_(None))
    if is_well_formed(key):
        meant = keys.c.digest == key_digest(key)
    else:
        meant = keys.c.display.startswith(key, autoescape=True)
    digests = connection.execute(select(keys.c.digest).where(*live, meant)).scalars().all()
    if len(digests) != 1:
        matches = "no live key" if not digests else f"{len(digests)} live keys"
        raise Missing(
            "unknown_key",
            f"{matches} of this project begins so: `deploy-reward keys list` shows all",
        )
    row = connection.execute(
        update(keys)
        .where(keys.c.digest == digests[0])
        .values(revoked_at=func.clock_timestamp())
        .returning(*_SHOWN)
    ).one()
    revoked = _record(row)
    record_action(
        connection,
        project_id,
        "key_revoked",
        by=by,
        subject=revoked.display,
        changes=_first_values(kind=revoked.kind.value, label=revoked.label),
    )
    return revoked


def _record(
    row: Row[str, str, datetime, datetime | None, datetime | None, str | None],
) -> KeyRecord:
    return value_of(KeyRecord, row, kind=KeyKind(row.kind))
