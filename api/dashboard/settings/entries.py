"""The pages of settings that are made of entries, each of which is saved and removed alone."""

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
from api.dashboard.settings.kinds import Kind, Row
from api.dashboard.settings.simple import seen_names
from storage.postgres.refusal import Invalid
from storage.tenants.settings import apply_settings, lock_settings, metric_renamed, stored_settings
from storage.tenants.sign_ins import Visitor

_GONE = (
    "Nothing was saved: somebody changed or removed this entry after the page was loaded. What you"
    " typed is kept below as a new entry; the others stand as they are stored now."
)
_CHANGED = (
    "Nothing was saved yet: somebody changed this entry after the page was loaded. What you typed"
    " is kept; what is stored now stands beside it. Save again to store yours."
)
_KEPT = "Nothing was removed: somebody changed this entry after the page was loaded."
_TAKEN = "There is an entry of this name: edit that entry."


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """An entry as the page shows it; without a key the form of a new entry."""

    key: str
    name: str
    facts: list[str]
    digest: str
    fields: list[ShownField]
    advanced: list[ShownField]
    shows_advanced: bool
    open: bool
    fault: str | None


def entries_page(kind: Kind) -> FormPage[tuple[dict[str, Any], Sequence[str]]]:
    """Returns the page of the entries of a setting."""
    return FormPage(
        template="settings/entries.html",
        read=_read,
        save=partial(_store, kind),
        show=partial(_show, kind),
    )


def _read(connection: Connection, visitor: Visitor) -> tuple[dict[str, Any], Sequence[str]]:
    return stored_settings(connection, visitor.project_id), seen_names(connection, visitor)


def _store(kind: Kind, connection: Connection, visitor: Visitor, form: Form) -> Reply | None:
    """Stores or removes an entry; returns the refusal with the fault beside each wrong field."""
    stored = lock_settings(connection, visitor.project_id)
    change = _remove if form.text("action") == "remove" else _save
    before = kind.rows(stored)
    rows = change(kind, before, form)
    if isinstance(rows, Reply) or rows == before:
        return rows if isinstance(rows, Reply) else None
    chosen = {kind.member: kind.value(rows), **_following(kind, stored, form)}
    try:
        apply_settings(connection, visitor.project_id, chosen, by=visitor.actor)
    except Invalid as refusal:
        return _refused(kind, form, status=422, faults=faults_of(kind.fields, refusal))
    return None


def _remove(kind: Kind, rows: list[dict[str, Any]], form: Form) -> list[dict[str, Any]] | Reply:
    at = _place(kind, rows, form)
    if at is None or form.text("seen") != digest_of(rows[at]):
        return Reply(status=409, note=_KEPT)
    return [*rows[:at], *rows[at + 1 :]]


def _save(kind: Kind, rows: list[dict[str, Any]], form: Form) -> list[dict[str, Any]] | Reply:
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


def _following(kind: Kind, stored: Mapping[str, Any], form: Form) -> dict[str, object]:
    """Returns the other settings that name an entry, where its form gives it another name."""
    old, new = form.text("key"), form.text("name").strip()
    if not kind.is_named or not old or old == new or form.text("action") == "remove":
        return {}
    return metric_renamed(stored, old, new)


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
    return Reply(
        status=status,
        key=form.text("key"),
        texts=form.texts(kind.fields),
        faults=faults or {},
        note=note,
        meanwhile=meanwhile,
    )


def _show(
    kind: Kind, _: Request, read: tuple[dict[str, Any], Sequence[str]], reply: Reply
) -> dict[str, Any]:
    stored, names = read
    return {
        "kind": kind,
        "names": names,
        "entries": [_entry(kind, row, reply) for row in kind.rows(stored)],
        "new": _entry(kind, None, reply),
    }


def _entry(kind: Kind, row: Row | None, refused: Reply) -> _Entry:
    key = "" if row is None else kind.key(row)
    texts = texts_of(kind.fields, row or {})
    is_it = refused.texts is not None and refused.key == key
    if is_it and refused.texts is not None:
        texts = refused.texts
    shown = shown_fields(
        kind.fields,
        texts,
        faults=refused.faults if is_it else None,
        meanwhile=refused.meanwhile if is_it else None,
    )
    advanced = [field for field in shown if field.field.folded]
    return _Entry(
        key=key,
        name="" if row is None else kind.name(row),
        facts=[] if row is None else kind.facts(row),
        digest="" if row is None else digest_of(row),
        fields=[field for field in shown if not field.field.folded],
        advanced=advanced,
        shows_advanced=any(
            field.text != field.field.default or field.fault or field.meanwhile is not None
            for field in advanced
        ),
        open=is_it,
        fault=refused.faults.get("") if is_it else None,
    )
