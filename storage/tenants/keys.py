"""Project keys: their form, their digests, and who holds which."""

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection, Row, func, or_, select, update

from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of
from storage.schema.tables import keys
from storage.tenants.audit_trail import PROGRAM, Actor, ActorKind, Change, record_action

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM, _CHECK = 34, 6
# A key's use is noted no more often: a row an event would cost more than the event.
USE_NOTED_EVERY = timedelta(minutes=10)
LONGEST_LABEL = 64
_SHOWN = (
    keys.c.display,
    keys.c.kind,
    keys.c.created_at,
    keys.c.revoked_at,
    keys.c.last_used_at,
    keys.c.label,
)
_FORM = re.compile(rf"(?:wk|pk|rk|ro)_[0-9A-Za-z]{{{_RANDOM + _CHECK}}}", re.ASCII)


class Role(StrEnum):
    """The rights of a signed-in person."""

    READ = "read"
    OWNER = "owner"


class KeyKind(StrEnum):
    """The kinds of keys, by the endpoints that they open."""

    WRITE = "write"
    PUBLIC = "public"
    PROJECT = "project"
    READ = "read"


# A new project gets a key of each; a key that only reads is made for whoever asks for it.
FIRST_KINDS = (KeyKind.WRITE, KeyKind.PUBLIC, KeyKind.PROJECT)
# The kinds that read verdicts and sign in to read.
READING_KINDS = (KeyKind.PROJECT, KeyKind.READ)
_PREFIXES = {
    KeyKind.WRITE: "wk_",
    KeyKind.PUBLIC: "pk_",
    KeyKind.PROJECT: "rk_",
    KeyKind.READ: "ro_",
}


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Whom a live key speaks for."""

    project_id: int
    kind: KeyKind


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


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits: list[str] = []
    for _ in range(_CHECK):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))


def new_key(kind: KeyKind) -> str:
    """Returns a fresh key: prefix, 34 random characters, and a CRC32 of both in base 62."""
    body = _PREFIXES[kind] + "".join(secrets.choice(_BASE62) for _ in range(_RANDOM))
    return body + _checksum(body)


def is_well_formed(key: str) -> bool:
    """Returns whether a text may be a key, without asking the store."""
    return _FORM.fullmatch(key) is not None and _checksum(key[:-_CHECK]) == key[-_CHECK:]


def key_digest(key: str) -> bytes:
    """Returns the stored digest of a key. It has 200 bits of chance: no salt is needed."""
    return hashlib.sha256(key.encode()).digest()


def create_key(
    connection: Connection,
    project_id: int,
    kind: KeyKind,
    *,
    label: str | None = None,
    by: Actor = PROGRAM,
) -> str:
    """Creates a key and returns it: the only time that it is seen.

    Args:
        label: Who or what holds it; at most `LONGEST_LABEL` characters.
    """
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


def key_actor(connection: Connection, digest: bytes) -> Actor:
    """Returns the actor who speaks through a key: its label, and its beginning."""
    row = connection.execute(
        select(keys.c.display, keys.c.label).where(keys.c.digest == digest)
    ).one()
    return Actor(kind=ActorKind.KEY, name=row.label, identity=row.display)


def holder(connection: Connection, digest: bytes) -> Holder | None:
    """Returns the holder of the key with a digest; None when it is unknown or revoked."""
    row = connection.execute(
        select(keys.c.project_id, keys.c.kind).where(
            keys.c.digest == digest, keys.c.revoked_at.is_(None)
        )
    ).one_or_none()
    return None if row is None else value_of(Holder, row, kind=KeyKind(row.kind))


def list_keys(connection: Connection, project_id: int) -> list[KeyRecord]:
    """Returns a project's keys, the oldest first, revoked ones included."""
    rows = connection.execute(
        select(*_SHOWN)
        .where(keys.c.project_id == project_id)
        .order_by(keys.c.created_at, keys.c.display)
    )
    return [_record(row) for row in rows]


def note_use(connection: Connection, digest: bytes) -> None:
    """Notes that a key was presented, where that was not noted within `USE_NOTED_EVERY`."""
    now = func.clock_timestamp()
    connection.execute(
        update(keys)
        .where(
            keys.c.digest == digest,
            or_(keys.c.last_used_at.is_(None), keys.c.last_used_at <= now - USE_NOTED_EVERY),
        )
        .values(last_used_at=now)
    )


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
