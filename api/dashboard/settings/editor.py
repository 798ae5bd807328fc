"""The editor of settings: a page for each kind of entry, each saved and removed alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request

from api.dashboard.page.form import (
    Form,
    FormPage,
    Reply,
    ShownField,
    Texts,
    digest_of,
    document,
    faults_of,
    shown_fields,
    texts_of,
)
from api.dashboard.settings.kinds import GENERAL, Kind, Row
from storage.postgres.refusal import Invalid
from storage.tenants.setting_changes import apply_settings, chosen_settings, metric_renamed
from storage.tenants.settings import stored_settings
from storage.tenants.sign_ins import Visitor
from storage.views.recent_traffic import read_names

_GONE = (
    "Nothing was saved: somebody changed or removed this entry after the page was loaded. What you"
    " typed is kept below as a new entry; the others stand as they are stored now."
)
_CHANGED = (
    "Nothing was saved yet: somebody changed these settings after the page was loaded. What you"
    " typed is kept; what is stored now stands beside it. Save again to store yours."
)
_KEPT = "Nothing was removed: somebody changed this entry after the page was loaded."
_TAKEN = "There is an entry of this name: edit that entry."
_NAMES_OFFERED = 50
_Read = tuple[dict[str, Any], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Fields of an entry that are shown together.

    Attributes:
        title: Empty of the first fields, which are never folded.
        changed: How many of them are not as by default.
    """

    title: str
    fields: list[ShownField]
    changed: int

    @property
    def is_open(self) -> bool:
        """Whether a field has something to look at."""
        return self.changed > 0 or any(
            shown.fault or shown.meanwhile is not None for shown in self.fields
        )


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """An entry as the page shows it; without a key the form of a new entry."""

    key: str
    name: str
    facts: list[str]
    digest: str
    groups: list[_Group]
    open: bool


def settings_page(kind: Kind) -> FormPage[_Read]:
    """Returns the page of the entries of a setting."""
    return FormPage(
        template="settings.html" if kind is GENERAL else "settings/entries.html",
        read=_read,
        save=partial(_store, kind),
        show=partial(_show, kind),
    )


def _read(connection: Connection, visitor: Visitor) -> _Read:
    """Returns the stored settings, and the names of events that came, the newest first."""
    names = read_names(connection, visitor.project_id)[:_NAMES_OFFERED]
    return stored_settings(connection, visitor.project_id), names


def _store(kind: Kind, connection: Connection, visitor: Visitor, form: Form) -> Reply | None:
    """Stores or removes an entry; returns the refusal with the fault beside each wrong field."""
    stored = stored_settings(connection, visitor.project_id, lock=True)
    is_removed = form.text("action") == "remove" and kind is not GENERAL
    before = kind.rows(stored)
    rows = (_remove if is_removed else _save)(kind, before, form)
    if isinstance(rows, Reply) or rows == before:
        return rows if isinstance(rows, Reply) else None
    chosen = kind.chosen(stored, rows)
    old, new = form.text("key"), form.text("name").strip()
    if kind.is_named and old and not is_removed and old != new:
        chosen |= metric_renamed(stored, old, new)
    # Each alone, so that every fault is said.
    faults: dict[str, str] = {}
    for member, value in chosen.items():
        try:
            chosen_settings({member: value})
        except Invalid as refusal:
            faults = {**faults_of(kind.fields, refusal), **faults}
    if not faults:
        try:
            apply_settings(connection, visitor.project_id, chosen, by=visitor.actor)
        except Invalid as refusal:
            # Members that can't stand together.
            faults = faults_of(kind.fields, refusal)
    return _refused(kind, form, status=422, faults=faults) if faults else None


def _remove(
    kind: Kind, rows: list[dict[str, object]], form: Form
) -> list[dict[str, object]] | Reply:
    at = _place(kind, rows, form)
    if at is None or form.text("seen") != digest_of(rows[at]):
        return Reply(status=409, note=_KEPT)
    return [*rows[:at], *rows[at + 1 :]]


def _save(kind: Kind, rows: list[dict[str, object]], form: Form) -> list[dict[str, object]] | Reply:
    typed = document(kind.fields, form.texts(kind.fields))
    at = _place(kind, rows, form)
    if typed in (rows if at is None else [rows[at]]):
        # Sent again by somebody who got no answer.
        return rows
    if at is None and form.text("key"):
        return replace(_refused(kind, form, status=409, note=_GONE), key="")
    others = rows if at is None else [*rows[:at], *rows[at + 1 :]]
    if kind.is_named and typed["name"] in {row["name"] for row in others}:
        return _refused(kind, form, status=422, faults={"name": _TAKEN})
    if at is None:
        return [*rows, typed]
    if form.text("seen") != digest_of(rows[at]):
        now = texts_of(kind.fields, rows[at])
        return _refused(kind, form, status=409, note=_CHANGED, meanwhile=now)
    kept = {field.name: rows[at][field.name] for field in kind.fields if field.secret}
    return [*rows[:at], {**kept, **typed}, *rows[at + 1 :]]


def _place(kind: Kind, rows: Sequence[Row], form: Form) -> int | None:
    """Returns the index of the entry that a form edits; None where it is gone."""
    keys = [kind.key(row) for row in rows]
    return keys.index(form.text("key")) if form.text("key") in keys else None


def _refused(
    kind: Kind,
    form: Form,
    *,
    status: int,
    note: str | None = None,
    faults: Mapping[str, str] | None = None,
    meanwhile: Texts | None = None,
) -> Reply:
    if faults:
        wrong = "1 field is" if len(faults) == 1 else f"{len(faults)} fields are"
        note = faults.get("") or f"Nothing was saved: {wrong} wrong."
    return Reply(
        status=status,
        key=form.text("key"),
        texts=form.texts(kind.fields),
        faults=faults or {},
        note=note,
        meanwhile=meanwhile,
    )


def _show(kind: Kind, _: Request, read: _Read, reply: Reply) -> dict[str, object]:
    stored, names = read
    return {
        "kind": kind,
        "names": names,
        "entries": [_entry(kind, row, reply) for row in kind.rows(stored)],
        "new": _entry(kind, None, reply),
    }


def _entry(kind: Kind, row: Row | None, refused: Reply) -> _Entry:
    key = "" if row is None else kind.key(row)
    usual, stored = texts_of(kind.fields, kind.usual), texts_of(kind.fields, row or kind.usual)
    reply = refused if refused.texts is not None and refused.key == key else Reply()
    name = "" if row is None else kind.name(row)
    groups: dict[str, list[ShownField]] = {}
    title = ""
    for shown in shown_fields(
        kind.fields, reply.texts or stored, faults=reply.faults, meanwhile=reply.meanwhile
    ):
        title = "more" if shown.field.folded else kind.groups.get(shown.field.name, title)
        groups.setdefault(title, []).append(shown)
    return _Entry(
        key=key,
        name=name,
        facts=[
            f"{field.label}: {field.choices.get(text) or '; '.join(text.splitlines())}"
            for field in kind.fields
            if (text := stored[field.name]) not in (usual[field.name], name)
        ],
        digest="" if row is None else digest_of(row),
        groups=[
            _Group(
                title=title,
                fields=fields,
                changed=sum(shown.text != usual[shown.field.name] for shown in fields),
            )
            for title, fields in groups.items()
        ],
        open=reply is refused,
    )
