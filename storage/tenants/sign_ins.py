"""Sign-ins: who looks at the dashboard, and the links and keys by which people come in."""

import hashlib
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, func, insert, or_, select

from storage.postgres.refusal import Invalid
from storage.postgres.rows import value_of
from storage.schema.annex_tables import sign_in_links, sign_ins
from storage.schema.tables import keys, projects
from storage.tenants.audit_trail import PROGRAM, Actor, ActorKind, Change, record_action
from storage.tenants.keys import READING_KINDS, Role, key_digest, note_use
from storage.tenants.projects import Project
from storage.tenants.settings import Settings, parse_settings

# Long enough to be opened by who asked for it, too short to be read in a chat's history.
LINK_LIFETIME = timedelta(minutes=15)
_GROUPS = ("owner_groups", "reader_groups")
# Digits of a sign-in's digest that the audit trail shows.
_SHOWN_DIGITS = 8
_LINK_FORM = re.compile(r"in_[0-9A-Za-z_-]{43}", re.ASCII)
_TOKEN_FORM = re.compile(r"[0-9A-Za-z_-]{43}", re.ASCII)


# Who can change settings signs in anew each day.
LIFETIMES = {Role.READ: timedelta(days=7), Role.OWNER: timedelta(hours=12)}


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """Somebody who signed in."""

    project_id: int
    project_name: str
    role: Role
    expires_at: datetime
    # The beginning of the digest of the sign-in, which tells two of them apart.
    identity: str
    # The name under which an authenticating proxy must go on to vouch for the visitor.
    name: str | None = None

    @property
    def actor(self) -> Actor:
        """The visitor as the audit trail names who changes something."""
        return Actor(kind=ActorKind.OWNER, name=self.name, identity=self.identity)


def is_link_code(text: str) -> bool:
    """Tells the code of a one-time link from anything else, without asking the store."""
    return _LINK_FORM.fullmatch(text) is not None


def create_link(connection: Connection, project_id: int, role: Role, *, by: Actor = PROGRAM) -> str:
    """Creates the code of a link that signs in once, and returns it: the only time it is seen."""
    code = f"in_{secrets.token_urlsafe(32)}"
    now = func.clock_timestamp()
    connection.execute(delete(sign_in_links).where(sign_in_links.c.expires_at <= now))
    connection.execute(
        insert(sign_in_links).values(
            digest=_digest(code),
            project_id=project_id,
            role=role.value,
            created_at=now,
            expires_at=now + LINK_LIFETIME,
        )
    )
    changes = [Change(member="role", before=None, after=role.value)]
    record_action(connection, project_id, "link_created", by=by, changes=changes)
    return code


def sign_in_by_link(connection: Connection, code: str) -> str | None:
    """Signs in by a link and uses it up; returns the browser's token, None for no link in force."""
    # A single statement: of two browsers with the same link a single browser comes in.
    row = connection.execute(
        delete(sign_in_links)
        .where(
            sign_in_links.c.digest == _digest(code),
            sign_in_links.c.expires_at > func.clock_timestamp(),
        )
        .returning(sign_in_links.c.project_id, sign_in_links.c.role)
    ).one_or_none()
    if row is None:
        return None
    return _sign_in(connection, row.project_id, Role(row.role), key=None)


def sign_in_by_key(connection: Connection, key: str) -> str | None:
    """Signs in by a project or read key, and returns the token that tells the browser again.

    The sign-in is to read, and ends with the key. None where no such key of that text is live.
    """
    project_id = connection.execute(
        select(keys.c.project_id).where(
            keys.c.digest == key_digest(key),
            keys.c.kind.in_([kind.value for kind in READING_KINDS]),
            keys.c.revoked_at.is_(None),
        )
    ).scalar_one_or_none()
    if project_id is None:
        return None
    note_use(connection, key_digest(key))
    return _sign_in(connection, project_id, Role.READ, key=key_digest(key))


def sign_in_by_proxy(connection: Connection, project_id: int, *, role: Role, name: str) -> str:
    """Signs in a person whom a proxy vouches for, and returns the token for the browser.

    The sign-in holds while the proxy goes on to vouch for the name, which its reader asks.
    """
    return _sign_in(connection, project_id, role, key=None, name=name)


def proxied_projects(connection: Connection) -> list[tuple[Project, Settings]]:
    """Returns the projects that give groups a role, as a proxy tells them, with their settings."""
    named = or_(*(projects.c.settings.has_key(member) for member in _GROUPS))
    rows = connection.execute(select(projects).where(named).order_by(projects.c.name))
    offering: list[tuple[Project, Settings]] = []
    for row in rows:
        # A project whose stored choices cannot be read keeps nobody out of the others.
        with suppress(Invalid):
            offering.append((value_of(Project, row), parse_settings(row.settings)))
    return offering


def visitor(connection: Connection, token: str) -> Visitor | None:
    """Returns a token's holder; None once it expired, was signed out, or its key was revoked."""
    if not _TOKEN_FORM.fullmatch(token):
        return None
    row = connection.execute(
        select(
            sign_ins.c.project_id,
            projects.c.name.label("project_name"),
            sign_ins.c.role,
            sign_ins.c.expires_at,
            sign_ins.c.name,
        )
        .join_from(sign_ins, projects)
        .outerjoin(keys, keys.c.digest == sign_ins.c.key_digest)
        .where(
            sign_ins.c.digest == _digest(token),
            sign_ins.c.expires_at > func.clock_timestamp(),
            or_(sign_ins.c.key_digest.is_(None), keys.c.revoked_at.is_(None)),
        )
    ).one_or_none()
    if row is None:
        return None
    return value_of(
        Visitor, row, role=Role(row.role), identity=_digest(token).hex()[:_SHOWN_DIGITS]
    )


def sign_out(connection: Connection, token: str) -> None:
    """Ends a sign-in."""
    connection.execute(delete(sign_ins).where(sign_ins.c.digest == _digest(token)))


def end_sign_ins(connection: Connection, project_id: int, *, by: Actor = PROGRAM) -> int:
    """Ends every sign-in to a project and every link that waits; returns how many sign-ins."""
    connection.execute(delete(sign_in_links).where(sign_in_links.c.project_id == project_id))
    ended = connection.execute(
        delete(sign_ins)
        .where(sign_ins.c.project_id == project_id)
        .returning(sign_ins.c.expires_at > func.clock_timestamp())
    )
    count = sum(ended.scalars())
    record_action(connection, project_id, "sign_ins_ended", by=by)
    return count


def _sign_in(
    connection: Connection,
    project_id: int,
    role: Role,
    *,
    key: bytes | None,
    name: str | None = None,
) -> str:
    token = secrets.token_urlsafe(32)
    now = func.clock_timestamp()
    connection.execute(delete(sign_ins).where(sign_ins.c.expires_at <= now))
    connection.execute(
        insert(sign_ins).values(
            digest=_digest(token),
            project_id=project_id,
            role=role.value,
            key_digest=key,
            name=name,
            created_at=now,
            expires_at=now + LIFETIMES[role],
        )
    )
    return token


def _digest(secret: str) -> bytes:
    """Returns the stored digest of a code or token. Its 256 bits of chance need no salt."""
    return hashlib.sha256(secret.encode()).digest()
