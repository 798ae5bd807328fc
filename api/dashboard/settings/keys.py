"""The page of a project's keys: made and shown once, listed with their last use, revoked."""

import re
from dataclasses import dataclass

from sqlalchemy import Connection
from starlette.requests import Request

from api.dashboard.page.form import Form, FormPage, Reply, digest_of
from api.dashboard.page.visit import public_address_of
from storage.postgres.refusal import Missing
from storage.tenants.keys import KeyKind
from storage.tenants.projects import LONGEST_LABEL, KeyRecord, create_key, list_keys, revoke_key
from storage.tenants.settings import stored_settings
from storage.tenants.sign_ins import Visitor

# Characters of a key that are listed: fewer could mean another key.
_DISPLAY = re.compile(r"(?:wk|pk|rk|ro)_[0-9A-Za-z]{5}", re.ASCII)
_MADE = (
    "No key was made: a key was, after this form was loaded. A key is shown once, by the page that"
    " answers its making; a form that is sent again, as a reload does, makes none. If you have not"
    " copied that key, revoke it and create another."
)
_KINDS = {
    KeyKind.WRITE: "sends events and deploys, from servers and pipelines",
    KeyKind.PUBLIC: "sends events from browsers; anybody may see it",
    KeyKind.PROJECT: "registers experiments, reads verdicts, signs in here to read",
    KeyKind.READ: "reads verdicts and signs in here to read; changes nothing",
}


@dataclass(frozen=True, kw_only=True)
class _Created:
    """A key that was made, to be shown this once."""

    kind: KeyKind
    key: str


@dataclass(frozen=True, kw_only=True)
class _Outcome(Reply):
    """The outcome of a post that the page itself shows."""

    created: _Created | None = None
    fault: str | None = None


def _read(connection: Connection, visitor: Visitor) -> list[KeyRecord]:
    return list_keys(connection, visitor.project_id)


def _change(connection: Connection, visitor: Visitor, form: Form) -> Reply | None:
    """Makes a key, which this reply alone shows, or revokes a key."""
    if form.text("action") == "revoke":
        return _revoke(connection, visitor, form.text("key"))
    if form.text("kind") not in list(KeyKind):
        return _Outcome(status=422, fault="Choose what the key is for.")
    # Two forms that were loaded together, or a form that is sent twice, make a single key.
    stored_settings(connection, visitor.project_id, lock=True)
    if form.text("seen") != _digest(list_keys(connection, visitor.project_id)):
        return _Outcome(status=409, note=_MADE)
    kind, label = KeyKind(form.text("kind")), form.text("label").strip()
    if len(label) > LONGEST_LABEL:
        return _Outcome(status=422, fault=f"A label has at most {LONGEST_LABEL} characters.")
    key = create_key(connection, visitor.project_id, kind, label=label, by=visitor.actor)
    return _Outcome(created=_Created(kind=kind, key=key))


def _digest(keys: list[KeyRecord]) -> str:
    """Returns the digest of the list of keys; it changes with each new key."""
    return digest_of([key.display for key in keys])


def _revoke(connection: Connection, visitor: Visitor, display: str) -> _Outcome | None:
    if not _DISPLAY.fullmatch(display):
        return _Outcome(status=422, note="That is no beginning of a key. Nothing was revoked.")
    try:
        revoke_key(connection, visitor.project_id, display, by=visitor.actor)
    except Missing as refusal:
        return _Outcome(status=409, note=f"Nothing was revoked: {refusal.detail}.")
    return None


def _show(request: Request, keys: list[KeyRecord], reply: Reply) -> dict[str, object]:
    outcome = reply if isinstance(reply, _Outcome) else _Outcome()
    return {
        "live": [key for key in keys if key.revoked_at is None],
        "revoked": [key for key in keys if key.revoked_at is not None],
        "kinds": _KINDS,
        "seen": _digest(keys),
        "created": outcome.created,
        "address": public_address_of(request),
        "fault": outcome.fault,
    }


KEYS = FormPage(template="settings/keys.html", read=_read, save=_change, show=_show)
