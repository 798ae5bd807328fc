"""The page of a project's simple settings: metric, test, decisions and trusted networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request

from api.dashboard.page.form import (
    Form,
    FormPage,
    Reply,
    ShownField,
    digest_of,
    document,
    faults_of,
    shown_fields,
    texts_of,
)
from api.dashboard.settings.fields import fields_of
from storage.postgres.refusal import Invalid
from storage.tenants.settings import (
    Settings,
    apply_settings,
    chosen_settings,
    lock_settings,
    parse_settings,
    read_settings,
)
from storage.tenants.sign_ins import Visitor
from storage.views.recent_traffic import read_names

CHANGED = (
    "Nothing was saved yet: somebody changed these settings after this page was loaded. What you"
    " typed is kept; what is stored now stands beside it. Save again to store yours."
)
_NAMES_OFFERED = 50

FIELDS = [field for field in fields_of(Settings) if field.control != "entries"]
# The groups of the form, each from the field on that is named here.
_GROUPS = {
    "default_metric": "What is tested",
    "alpha": "How it is decided",
    "allowed_origins": "Whom it believes",
}
# What a new project sets; the rest is folded while it is as by default.
_ALWAYS_OPEN = ("What is tested",)


def seen_names(connection: Connection, visitor: Visitor) -> Sequence[str]:
    """Returns the names of events that came to the visitor's project, the newest first."""
    return read_names(connection, visitor.project_id)[:_NAMES_OFFERED]


def _read(connection: Connection, visitor: Visitor) -> tuple[Settings, Sequence[str]]:
    return read_settings(connection, visitor.project_id), seen_names(connection, visitor)


def _save(connection: Connection, visitor: Visitor, form: Form) -> Reply | None:
    """Stores the typed settings; returns the refusal, or None."""
    texts, shown = (
        form.texts(FIELDS),
        _shown(parse_settings(lock_settings(connection, visitor.project_id))),
    )
    if form.text("seen") != digest_of(shown):
        return Reply(status=409, texts=texts, note=CHANGED, meanwhile=texts_of(FIELDS, shown))
    typed = document(FIELDS, texts)
    # What nobody changed may have been stored before its rule stood.
    faults = _faults({name: value for name, value in typed.items() if value != shown[name]})
    if not faults:
        # A member that is so already keeps its default.
        changed = {
            member: value
            for member, value in typed.items()
            if _shown(parse_settings({member: value}))[member] != shown[member]
        }
        try:
            apply_settings(connection, visitor.project_id, changed, by=visitor.actor)
        except Invalid as refusal:
            # Members that can't stand together.
            faults = faults_of(FIELDS, refusal)
    if not faults:
        return None
    return Reply(status=422, texts=texts, faults=faults, note=faults.get(""))


def _shown(settings: Settings) -> dict[str, Any]:
    members = {field.name.partition(".")[0] for field in FIELDS}
    stored: dict[str, Any] = msgspec.to_builtins(settings)
    return {member: value for member, value in stored.items() if member in members}


def _faults(typed: Mapping[str, Any]) -> dict[str, str]:
    faults: dict[str, str] = {}
    for member, value in typed.items():
        try:
            chosen_settings({member: value})
        except Invalid as refusal:
            faults |= faults_of(FIELDS, refusal)
    return faults


def _show(_: Request, read: tuple[Settings, Sequence[str]], reply: Reply) -> dict[str, Any]:
    settings, names = read
    shown = _shown(settings)
    usual, texts = texts_of(FIELDS, _shown(Settings())), reply.texts or texts_of(FIELDS, shown)
    groups: dict[str, list[ShownField]] = {}
    for each in shown_fields(FIELDS, texts, faults=reply.faults, meanwhile=reply.meanwhile):
        title = _GROUPS.get(each.field.name) or [*groups][-1]
        groups.setdefault(title, []).append(each)
    return {
        "groups": [_group(title, fields, usual) for title, fields in groups.items()],
        "names": names,
        "seen": digest_of(shown),
        "wrong": sum(bool(name) for name in reply.faults),
    }


@dataclass(frozen=True, kw_only=True)
class _Group:
    """A group of the form.

    Attributes:
        changed: How many of them are not as by default.
    """

    title: str
    fields: Sequence[ShownField]
    changed: int
    is_advanced: bool
    is_open: bool


def _group(title: str, fields: Sequence[ShownField], usual: Mapping[str, str]) -> _Group:
    changed = sum(shown.text != usual[shown.field.name] for shown in fields)
    disputed = any(shown.fault or shown.meanwhile is not None for shown in fields)
    return _Group(
        title=title,
        fields=fields,
        changed=changed,
        is_advanced=title not in _ALWAYS_OPEN,
        is_open=disputed or changed > 0,
    )


SETTINGS = FormPage(template="settings.html", read=_read, save=_save, show=_show)
