"""The audit trail: who changed what of a project and when, kept for good and without secrets."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from sqlalchemy import Connection, func

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


def record_action(
    connection: Connection,
    project_id: int | None,
    action: Action,
    *,
    by: Actor,
    subject: str | None = None,
    changes: Sequence[Change] = (),
) -> None:
    """Records an action in the transaction that does it; without project, on the whole service."""
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
