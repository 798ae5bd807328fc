"""The audit trail: who changed what of a project and when, kept for good and without secrets."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import Connection, func, or_, select

from storage.postgres.rows import value_of
from storage.schema.tables import audit_trail

Action = Literal[
    "project_created",
    "settings_changed",
    "key_created",
    "key_revoked",
    "link_created",
    "sign_ins_ended",
    "experiment_closed",
    "deploy_withdrawn",
    "person_forgotten",
    "frozen",
    "unfrozen",
]


class ActorKind(StrEnum):
    """The ways in which a person can change the store."""

    OWNER = "owner"
    KEY = "key"
    COMMAND = "command"
    PROGRAM = "program"


@dataclass(frozen=True, kw_only=True)
class Actor:
    """Who changed something.

    Attributes:
        kind: An owner in the dashboard, a key over HTTP, a command, or a program of ours that
            works on the store by itself.
        name: The owner's name, where a proxy vouches for it; the key's label; the login under
            which the command ran.
        identity: The beginning of the key, or of the digest of the owner's sign-in.
    """

    kind: ActorKind
    name: str | None = None
    identity: str | None = None


PROGRAM = Actor(kind=ActorKind.PROGRAM)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A member that was changed: its value before and after, None where there was none."""

    member: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """A person's action.

    Attributes:
        entry_id: Its place in the trail.
        happened_at: When.
        action: Its kind.
        subject: To what: the beginning of a key, an experiment, a deploy; None where the action
            says it.
        changes: The members that were changed, without secrets.
        whole_service: Whether it was done to all projects at once.
    """

    entry_id: int
    happened_at: datetime
    actor: Actor
    action: Action
    subject: str | None
    changes: Sequence[Change]
    whole_service: bool


def record_action(
    connection: Connection,
    project_id: int | None,
    action: Action,
    *,
    by: Actor,
    subject: str | None = None,
    changes: Sequence[Change] = (),
) -> None:
    """Records an action in the transaction that does it: neither stands without the other.

    Args:
        project_id: The project; None for the whole service.
        action: Its kind.
        by: Who does it.
        subject: To what.
        changes: The members that are changed, without secrets.
    """
    connection.execute(
        audit_trail.insert().values(
            project_id=project_id,
            happened_at=func.clock_timestamp(),
            actor_kind=by.kind.value,
            actor_name=by.name,
            actor_identity=by.identity,
            action=action,
            subject=subject,
            changes=[asdict(change) for change in changes],
        )
    )


def read_trail(
    connection: Connection, project_id: int, *, limit: int, before: int | None = None
) -> list[AuditEntry]:
    """Returns the trail of a project, the newest first, with the actions on the whole service.

    Args:
        limit: The most entries.
        before: The place of the entry after which the list goes on.
    """
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
            changes=[Change(**change) for change in row.changes],
            whole_service=row.project_id is None,
        )
        for row in connection.execute(query)
    ]


def audit_document(entry: AuditEntry) -> dict[str, Any]:
    """Returns an entry as plain JSON values."""
    return {
        "entry_id": entry.entry_id,
        "happened_at": entry.happened_at.isoformat(),
        "actor": asdict(entry.actor),
        "action": entry.action,
        "subject": entry.subject,
        "whole_service": entry.whole_service,
        "changes": [asdict(change) for change in entry.changes],
    }


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Returns the members that differ between two documents.

    Of a member that is an object each of its own members is a change.
    """
    changes: list[Change] = []
    for member in sorted(before.keys() | after.keys()):
        old, new = before.get(member), after.get(member)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner: list[Change] = changes_between(old, new)
            changes += [
                Change(member=f"{member}.{change.member}", before=change.before, after=change.after)
                for change in inner
            ]
        else:
            changes.append(Change(member=member, before=old, after=new))
    return changes
