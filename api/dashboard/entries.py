"""The pages of settings that are made of entries: metrics, value routes, webhooks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.dashboard.form import (
    Asked,
    Field,
    Form,
    Texts,
    asked,
    digest_of,
    document,
    faults_of,
    lines,
    number,
    posted,
    texts_of,
    whole,
)
from api.dashboard.markup import page
from api.dashboard.settings import READ_ONLY
from api.dashboard.visit import seen
from storage.metric import DAY, HOUR, MINUTE, Metric, metric_definition
from storage.refusal import Invalid
from storage.settings import apply_settings, lock_settings, metric_renamed, stored_settings
from storage.sign_ins import Role, Visitor
from storage.webhook import EVENTS, MOST_WEBHOOKS, TOKEN_PREFIX, Webhook

Row = Mapping[str, Any]

_GONE = (
    "Nothing was saved: somebody changed or removed this entry after the page was loaded. What you"
    " typed is kept below as a new entry; the others stand as they are stored now."
)
_CHANGED = (
    "Nothing was saved yet: somebody changed this entry after the page was loaded. What you typed"
    " is kept; what is stored now stands beside it. Save again to store yours."
)
_KEPT = "Nothing was removed: somebody changed this entry after the page was loaded."
_TAKEN = "There is an entry of this name: edit that one."


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A setting that is made of entries.

    Attributes:
        member: The setting.
        title: What its page is called.
        one: What an entry is called.
        lead: What the entries are for.
        fields: What is asked of an entry.
        key: By what a form names an entry.
        name: What an entry is called on the page.
        facts: What the page tells of it.
    """

    member: str
    title: str
    one: str
    lead: str
    fields: Sequence[Field]
    key: Callable[[Row], str]
    name: Callable[[Row], str]
    facts: Callable[[Row], list[str]]

    def rows(self, stored: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns the entries as they are stored; a named one with its name."""
        found = stored.get(self.member, [])
        if isinstance(found, Mapping):
            named: Mapping[str, Mapping[str, Any]] = found
            return [{"name": name, **members} for name, members in sorted(named.items())]
        return [dict(row) for row in found]

    def value(self, rows: Sequence[Row]) -> object:
        """Returns the setting of such entries."""
        if not self.is_named:
            return list(rows)
        return {
            row.get("name", ""): {name: value for name, value in row.items() if name != "name"}
            for row in rows
        }

    @property
    def is_named(self) -> bool:
        """Whether each entry has a name of its own."""
        return self.fields[0].name == "name"


def _window(seconds: int) -> str:
    for size, unit in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if seconds % size == 0:
            many = seconds // size
            return f"{many} {unit}{'' if many == 1 else 's'}"
    return f"{seconds} seconds"


def _facts_of_metric(row: Row) -> list[str]:
    chosen = {name: value for name, value in row.items() if name != "name"}
    found: dict[str, Any] = metric_definition(
        row["name"], {row["name"]: msgspec.convert(chosen, Metric)}
    )
    margin = found["margin"]
    return [
        "counts " + ", ".join(found["sources"]),
        f"within {_window(found['window_seconds'])}",
        f"{found['better']} is better",
        *(["a mean"] if found["kind"] == "mean" else []),
        *([f"capped at {found['cap']:g}"] if found["cap"] is not None else []),
        *([] if margin == "default" else [f"margin {'none' if margin is None else margin}"]),
    ]


def _words(event: str) -> str:
    return event.replace("_", " ")


def _facts_of_webhook(row: Row) -> list[str]:
    webhook = msgspec.convert(row, Webhook)
    return [
        webhook.format,
        "told of " + ", ".join(_words(event) for event in webhook.events),
        *([f"token in {webhook.token_variable}"] if webhook.token_variable else []),
    ]


METRICS = Kind(
    member="metrics",
    title="Metrics",
    one="metric",
    lead="A metric that is not named here counts the events of its own name.",
    fields=(
        Field(
            name="name",
            label="Name",
            hint="Renaming it renames it in default metric, guardrails and values too. Experiments"
            " that have met their deploy keep the old name.",
            mentions=("metrics", "default_metric", "guardrails", "value_routes"),
            example="order_placed",
        ),
        Field(
            name="sources",
            label="Events that count",
            hint="One a line; none named: those of the metric’s own name.",
            control="lines",
            reads=lines,
            optional=True,
        ),
        Field(
            name="window_seconds",
            label="Window, in seconds",
            hint="How long after its exposure a unit’s events count: a multiple of 300, at most"
            " 2419200 (28 days). Empty: 1800, or what fits a name that is known.",
            reads=whole,
            optional=True,
        ),
        Field(
            name="better",
            label="Which is better",
            control="choice",
            choices={"": "By its name", "higher": "Higher", "lower": "Lower"},
            optional=True,
        ),
        Field(
            name="kind",
            label="What is compared",
            control="choice",
            choices={
                "conversion": "Share of units that convert",
                "mean": "Mean amount a unit",
            },
            default="conversion",
        ),
        Field(
            name="cap",
            label="Cap",
            hint="Of a mean: the most that one unit counts for.",
            reads=number,
            optional=True,
        ),
        Field(
            name="margin",
            label="Margin",
            hint="As a guardrail: the loss that is accepted. Empty: 20 % of control’s rate, or half"
            " a point; none waits for nothing.",
            reads=lambda text: text.strip() if text.strip() == "default" else number(text),
            optional=True,
            nothing="none",
        ),
        Field(name="currency", label="Currency", optional=True, example="USD"),
    ),
    key=lambda row: row["name"],
    name=lambda row: row["name"],
    facts=_facts_of_metric,
)
VALUES = Kind(
    member="value_routes",
    title="Values",
    one="value",
    lead="What one conversion is worth, by metric and route: by it verdicts tell what is at risk.",
    fields=(
        Field(name="metric", label="Metric", example="order_placed"),
        Field(
            name="route",
            label="Route",
            hint="As your graph names it; *: every route without its own.",
            default="*",
            optional=True,
        ),
        Field(
            name="value_per_conversion",
            label="Value of a conversion",
            reads=number,
            optional=True,
            example="40",
        ),
        Field(name="currency", label="Currency", default="USD", optional=True),
    ),
    key=digest_of,
    name=lambda row: row["metric"],
    facts=lambda row: [
        "every route without its own" if row.get("route", "*") == "*" else f"on {row['route']}",
        f"{row['value_per_conversion']:g} {row.get('currency', 'USD')} a conversion",
    ],
)
WEBHOOKS = Kind(
    member="webhooks",
    title="Webhooks",
    one="webhook",
    lead=f"Who is told of verdicts, at most {MOST_WEBHOOKS}. An address may itself be a secret:"
    " beyond its host it is shown to nobody.",
    fields=(
        Field(
            name="format",
            label="Format",
            control="choice",
            choices={"raw": "Raw, signed", "slack": "Slack", "github": "GitHub dispatch"},
            default="raw",
        ),
        Field(
            name="url",
            label="Address",
            mentions=("address",),
            optional=True,
            secret=True,
            example="https://hooks.example/verdicts",
        ),
        Field(
            name="events",
            label="Told of",
            control="checks",
            choices={event: _words(event) for event in EVENTS},
            reads=lines,
            default="\n".join(EVENTS),
        ),
        Field(
            name="token_variable",
            label="Variable of the token",
            hint="The environment variable that holds the receiver’s bearer token;"
            f" it begins {TOKEN_PREFIX}.",
            mentions=("token",),
            optional=True,
        ),
    ),
    key=lambda row: msgspec.convert(row, Webhook).target,
    name=lambda row: msgspec.convert(row, Webhook).shown,
    facts=_facts_of_webhook,
)
PAGES: Mapping[str, Kind] = {"metrics": METRICS, "values": VALUES, "webhooks": WEBHOOKS}


@dataclass(frozen=True, kw_only=True)
class _Refused:
    """What was typed into the form of an entry and not stored, and why.

    Attributes:
        status: The answer's.
        key: Whose form it is; empty of a new entry's.
        texts: What was typed; None where nothing is kept of it.
        faults: By field; those of none alone have no name.
        note: What the page says above all.
        meanwhile: What is stored now.
    """

    status: int
    key: str = ""
    texts: Texts | None = None
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    note: str | None = None
    meanwhile: Texts | None = None


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """An entry as the page shows it; without a key the form of a new one."""

    key: str
    name: str
    facts: list[str]
    seen: str
    asked: list[Asked]
    open: bool
    fault: str | None


async def get_entries(request: Request) -> Response:
    """Return the page of the entries of a setting."""
    _, stored = await seen(
        request, lambda connection, visitor: stored_settings(connection, visitor.project_id)
    )
    return _page(request, stored)


async def post_entries(request: Request) -> Response:
    """Store or remove an entry, or return the page with what is wrong beside it."""
    kind = _kind(request)
    form = await posted(request)

    def changing(
        connection: Connection, visitor: Visitor
    ) -> tuple[dict[str, Any], _Refused | None]:
        stored = lock_settings(connection, visitor.project_id)
        if visitor.role is not Role.OWNER:
            return stored, _Refused(status=403, note=READ_ONLY)
        change = _remove if form.text("action") == "remove" else _save
        rows = change(kind, kind.rows(stored), form)
        if isinstance(rows, _Refused):
            return stored, rows
        chosen = {kind.member: kind.value(rows), **_following(kind, stored, form)}
        try:
            apply_settings(connection, visitor.project_id, chosen)
        except Invalid as refusal:
            faults = faults_of(kind.fields, refusal)
            return stored, _refused(kind, form, status=422, faults=faults)
        return stored, None

    _, (stored, refused) = await seen(request, changing)
    if refused is None:
        return RedirectResponse(f"{request.scope['path']}?saved", status_code=303)
    return _page(request, stored, refused)


def _remove(kind: Kind, rows: list[dict[str, Any]], form: Form) -> list[dict[str, Any]] | _Refused:
    at = _place(kind, rows, form)
    if at is None or form.text("seen") != digest_of(rows[at]):
        return _Refused(status=409, note=_KEPT)
    return [*rows[:at], *rows[at + 1 :]]


def _save(kind: Kind, rows: list[dict[str, Any]], form: Form) -> list[dict[str, Any]] | _Refused:
    typed = document(kind.fields, form.texts(kind.fields))
    at = _place(kind, rows, form)
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
    kept = {one.name: rows[at][one.name] for one in kind.fields if one.secret}
    return [*rows[:at], {**kept, **typed}, *rows[at + 1 :]]


def _following(kind: Kind, stored: Mapping[str, Any], form: Form) -> dict[str, object]:
    """Returns the other settings that name an entry, where its form gives it another name."""
    old, new = form.text("key"), form.text("name").strip()
    if not kind.is_named or not old or old == new or form.text("action") == "remove":
        return {}
    return metric_renamed(stored, old, new)


def _place(kind: Kind, rows: Sequence[Row], form: Form) -> int | None:
    """Returns where the entry stands that a form was of."""
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
) -> _Refused:
    return _Refused(
        status=status,
        key=form.text("key"),
        texts=form.texts(kind.fields),
        faults=faults or {},
        note=note,
        meanwhile=meanwhile,
    )


def _kind(request: Request) -> Kind:
    return PAGES[request.scope["path"].rpartition("/")[2]]


def _page(request: Request, stored: Mapping[str, Any], refused: _Refused | None = None) -> Response:
    kind = _kind(request)
    refused = refused or _Refused(status=200)
    entries = [_entry(kind, row, refused) for row in kind.rows(stored)]
    return page(
        request,
        "settings/entries.html",
        status=refused.status,
        kind=kind,
        entries=entries,
        new=_entry(kind, None, refused),
        note=refused.note,
        saved="saved" in request.query_params,
    )


def _entry(kind: Kind, row: Row | None, refused: _Refused) -> _Entry:
    key = "" if row is None else kind.key(row)
    texts = texts_of(kind.fields, row or {})
    is_it = refused.texts is not None and refused.key == key
    if is_it and refused.texts is not None:
        texts = refused.texts
    return _Entry(
        key=key,
        name="" if row is None else kind.name(row),
        facts=[] if row is None else kind.facts(row),
        seen="" if row is None else digest_of(row),
        asked=asked(
            kind.fields,
            texts,
            faults=refused.faults if is_it else None,
            meanwhile=refused.meanwhile if is_it else None,
        ),
        open=is_it,
        fault=refused.faults.get("") if is_it else None,
    )
