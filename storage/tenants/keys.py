"""Project keys: their form, their digests, and who holds which."""

import hashlib
import re
import zlib
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from sqlalchemy import Connection, func, or_, select, update

from storage.postgres.rows import value_of
from storage.schema.tables import keys
from storage.tenants.audit_trail import Actor, ActorKind

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RANDOM, _CHECK = 34, 6
# A key's use is noted no more often: a row an event would cost more than the event.
USE_NOTED_EVERY = timedelta(minutes=10)
_FORM = re.compile(rf"(?:wk|pk|rk|ro)_[0-9A-Za-z]{{{RANDOM + _CHECK}}}", re.ASCII)


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


# The kinds that read verdicts and sign in to read.
READING_KINDS = (KeyKind.PROJECT, KeyKind.READ)


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Whom a live key speaks for."""

    project_id: int
    kind: KeyKind


def checksum(body: str) -> str:
    """Returns the CRC32 of a key's prefix and characters, in base 62."""
    number = zlib.crc32(body.encode())
    digits: list[str] = []
    for _ in range(_CHECK):
        number, digit = divmod(number, 62)
        digits.append(BASE62[digit])
    return "".join(reversed(digits))


def is_well_formed(key: str) -> bool:
    """Returns whether a text may be a key, without asking the store."""
    return _FORM.fullmatch(key) is not None and checksum(key[:-_CHECK]) == key[-_CHECK:]


def key_digest(key: str) -> bytes:
    """Returns the stored digest of a key. It has 200 bits of chance: no salt is needed."""
    return hashlib.sha256(key.encode()).digest()


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
