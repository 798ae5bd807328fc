"""The audit trail: who changed what of a project and when, kept for good and without secrets."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from sqlalchemy import Connection, func, or_, select

from domain.document import Moment
from storage.postgres.rows import value_of
from storage.schema.tables import audit_trail

Action = Literal[
    "project_created",
    "settings_changed",
    "default_metric_settled",
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


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who changed something: a person, or a program of ours that works on the store by itself."""

    kind: ActorKind
    name: Annotated[
        str | None,
        Meta(
            description="The owner's name, where an authenticating proxy sends it; the key's label;"
            " the login under which a command ran."
        ),
    ]
    identity: Annotated[
        str | None,
        Meta(description="The beginning of the key, or of the digest of the owner's sign-in."),
    ]


PROGRAM = Actor(kind=ActorKind.PROGRAM, name=None, identity=None)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A member that was changed."""

    member: str
    before: Annotated[Any, Meta(description="Null where there was none.")]
    after: Annotated[Any, Meta(description="Null where there is none any more.")]


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
            changes=msgspec.to_builtins(changes),
        )
    )


def read_trail(
    connection: Connection, project_id: int, *, limit: int, before: int | None = None
) -> list[AuditEntry]:
    """Returns the trail of a project, the newest first, with the actions on the whole service.

    Args:
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
            whole_service=row.project_id is None,
        )
        for row in connection.execute(query)
    ]


def audit_document(entry: AuditEntry) -> dict[str, Any]:
    """Returns an entry as plain JSON values."""
    return msgspec.to_builtins(entry) | {"happened_at": entry.happened_at.isoformat()}


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
