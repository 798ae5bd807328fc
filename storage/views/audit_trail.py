"""The audit trail as it is read: the newest entries of a project and of the whole service."""

from typing import Annotated

import msgspec
from msgspec import Meta
from sqlalchemy import Connection, or_, select

from domain.document import Moment
from storage.postgres.rows import value_of
from storage.schema.tables import audit_trail
from storage.tenants.audit_trail import Action, Actor, ActorKind, Change


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit trail."""

    entry_id: Annotated[int, Meta(description="Its place in the trail.")]
    happened_at: Moment
    actor: Actor
    action: Action
    subject: Annotated[
        str | None, Meta(description="To what: the beginning of a key, an experiment, a deploy.")
    ]
    whole_service: Annotated[
        bool, Meta(description="True of freezes, which stand in each project's trail.")
    ]
    # Without secrets.
    changes: tuple[Change, ...]


def read_trail(
    connection: Connection, project_id: int, *, limit: int, before: int | None = None
) -> list[AuditEntry]:
    """Returns a project's trail and the whole service's, newest first, after the entry `before`."""
    query = (
        select(audit_trail)
        .where(or_(audit_trail.c.project_id == project_id, audit_trail.c.project_id.is_(None)))
        .order_by(audit_trail.c.entry_id.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(audit_trail.c.entry_id < before)
    return [
        value_of(
            AuditEntry,
            row,
            actor=Actor(
                kind=ActorKind(row.actor_kind), name=row.actor_name, identity=row.actor_identity
            ),
            whole_service=row.project_id is None,
        )
        for row in connection.execute(query)
    ]


def audit_document(entry: AuditEntry) -> dict[str, object]:
    """Returns an entry as plain JSON values."""
    return msgspec.to_builtins(entry) | {"happened_at": entry.happened_at.isoformat()}
