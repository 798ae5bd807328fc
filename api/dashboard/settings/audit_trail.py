"""The audit trail for owners, as a page and as data: who changed what of a project and when."""

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.dashboard.page.markup import page
from api.dashboard.page.visit import SignInNeededError, read_for_visitor
from api.wire.answer import answer
from api.wire.documentation import answered, reading
from api.wire.problem import Problem
from storage.postgres.refusal import Missing
from storage.tenants.audit_trail import (
    Actor,
    ActorKind,
    AuditEntry,
    Change,
    audit_document,
    read_trail,
)
from storage.tenants.sign_ins import Role, Visitor

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

# Opened by an owner's sign-in and by no key: whoever is judged does not watch the examiner.
router = APIRouter(tags=["settings"])
# RFC 9110 wants a scheme. Browsers know none called Cookie, and so ask for no password.
_CHALLENGE = {"WWW-Authenticate": 'Cookie realm="deploy-reward"'}


class AuditTrail(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the audit trail, the newest entries first."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None


async def get_audit_trail(request: Request) -> Response:
    """Return the page of the audit trail, the newest entries first."""
    before = request.query_params.get("before")
    if before is not None and not _PLACE.fullmatch(before):
        raise Missing("not_found", "There is no such page.")
    entries = await _read(request, limit=_ON_A_PAGE + 1, before=before)
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


@router.get(
    "/v1/audit-trail",
    summary="Read the audit trail",
    responses={200: answered(AuditTrail)},
    openapi_extra=reading(keys=["SignIn"]),
)
async def get_entries(
    request: Request,
    *,
    limit: Annotated[int, Query(ge=1, le=200)] = _ON_A_PAGE,
    cursor: Annotated[
        str | None, Query(pattern=f"^{_PLACE.pattern}$", description="`next_cursor` of a page.")
    ] = None,
) -> Response:
    """Return who changed what of the project and when, the newest entries first.

    For owners who are signed in to the dashboard: no key opens it.
    """
    try:
        entries = await _read(request, limit=limit + 1, before=cursor)
    except SignInNeededError:
        detail = "the audit trail is for owners who are signed in to the dashboard"
        raise Problem("missing_key", detail, headers=_CHALLENGE) from None
    shown = entries[:limit]
    document = {
        "entries": [audit_document(entry) for entry in shown],
        "next_cursor": str(shown[-1].entry_id) if len(entries) > limit else None,
    }
    return answer(document, headers={"Cache-Control": "no-store"})


async def _read(request: Request, *, limit: int, before: str | None) -> list[AuditEntry]:
    place = None if before is None else int(before)

    def reading(connection: Connection, visitor: Visitor) -> list[AuditEntry]:
        if visitor.role is not Role.OWNER:
            raise Problem("read_only", _OWNERS_ALONE)
        return read_trail(connection, visitor.project_id, limit=limit, before=place)

    _, entries = await read_for_visitor(request, reading)
    return entries


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
