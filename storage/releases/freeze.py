"""Freezes: stops the whole service from acting on verdicts, with a reason."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select, update
from sqlalchemy.dialects.postgresql import insert

from storage.postgres.rows import value_of
from storage.schema.annex_tables import freezes
from storage.tenants.audit_trail import PROGRAM, Actor, Change, record_action

_IN_FORCE = freezes.c.unfrozen_at.is_(None)


@dataclass(frozen=True, kw_only=True)
class Freeze:
    """A time in which every webhook waits and every gate holds; evidence goes on."""

    frozen_at: datetime
    reason: str


def current_freeze(connection: Connection) -> Freeze | None:
    """Returns the freeze that is in force."""
    row = connection.execute(
        select(freezes.c.frozen_at, freezes.c.reason).where(_IN_FORCE)
    ).one_or_none()
    return None if row is None else value_of(Freeze, row)


def freeze(connection: Connection, reason: str, *, by: Actor = PROGRAM) -> bool:
    """Freezes the service, and tells whether it was not frozen before; an older reason stands."""
    added = connection.execute(
        insert(freezes)
        .values(frozen_at=func.clock_timestamp(), reason=reason)
        .on_conflict_do_nothing()
        .returning(freezes.c.freeze_id)
    )
    if added.one_or_none() is None:
        return False
    changes = [Change(member="reason", before=None, after=reason)]
    record_action(connection, None, "frozen", by=by, changes=changes)
    return True


def unfreeze(connection: Connection, *, by: Actor = PROGRAM) -> Freeze | None:
    """Ends the freeze that is in force, and returns it."""
    row = connection.execute(
        update(freezes)
        .where(_IN_FORCE)
        .values(unfrozen_at=func.clock_timestamp())
        .returning(freezes.c.frozen_at, freezes.c.reason)
    ).one_or_none()
    if row is None:
        return None
    changes = [Change(member="reason", before=row.reason, after=None)]
    record_action(connection, None, "unfrozen", by=by, changes=changes)
    return value_of(Freeze, row)
