"""The audit trail for owners, as a page: who changed what of a project and when."""

import re
from collections.abc import Mapping

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.dashboard.page.markup import page
from api.dashboard.page.visit import read_for_visitor
from api.wire.problem import Problem
from storage.postgres.refusal import Missing
from storage.tenants.audit_trail import Actor, ActorKind, Change
from storage.tenants.keys import Role
from storage.tenants.sign_ins import Visitor
from storage.views.audit_trail import AuditEntry, read_trail

_ON_A_PAGE = 50
# Below 10**18, which the store's identifiers never reach.
_PLACE = re.compile("[0-9]{1,18}")
_OWNERS_ALONE = (
    "The audit trail is for owners: open the link that `deploy-reward dashboard --owner` prints."
)
_KINDS: Mapping[ActorKind, str] = {
    ActorKind.OWNER: "owner",
    ActorKind.KEY: "key",
    ActorKind.COMMAND: "command line",
    ActorKind.PROGRAM: "a program of the service",
}


async def get_audit_trail(request: Request) -> Response:
    """Return the page of the audit trail, the newest entries first."""
    before = request.query_params.get("before")
    if before is not None and not _PLACE.fullmatch(before):
        raise Missing("not_found", "There is no such page.")
    place = None if before is None else int(before)

    def reading(connection: Connection, visitor: Visitor) -> list[AuditEntry]:
        if visitor.role is not Role.OWNER:
            raise Problem("read_only", _OWNERS_ALONE)
        return read_trail(connection, visitor.project_id, limit=_ON_A_PAGE + 1, before=place)

    _, entries = await read_for_visitor(request, reading)
    shown = entries[:_ON_A_PAGE]
    return page(
        request,
        "settings/audit_trail.html",
        entries=shown,
        more=shown[-1].entry_id if len(entries) > _ON_A_PAGE else None,
        first=before is None,
        actor_text=_actor_text,
        change_text=_change_text,
    )


def _actor_text(actor: Actor) -> str:
    """Returns who it was: the name where it is known, and how to tell two of them apart."""
    name = "" if actor.name is None else f" {actor.name}"
    identity = "" if actor.identity is None else f" ({actor.identity}…)"
    return f"{_KINDS[actor.kind]}{name}{identity}"


def _change_text(change: Change) -> str:
    """Returns a change in a line; a value as settings show it."""
    after = _value_text(change.after)
    return after if change.before is None else f"{_value_text(change.before)} → {after}"


def _value_text(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
