"""The page of a project's simple settings: metric, test, decisions and trusted networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.dashboard.page.form import (
    Field,
    Form,
    ShownField,
    Texts,
    digest_of,
    document,
    faults_of,
    lines,
    number,
    numbers,
    posted,
    shown_fields,
    texts_of,
    ticked,
    whole,
    whole_numbers,
)
from api.dashboard.page.markup import page
from api.dashboard.page.visit import read_for_visitor
from storage.postgres.refusal import Invalid
from storage.tenants.settings import (
    Settings,
    apply_settings,
    chosen_settings,
    lock_settings,
    parse_settings,
    read_settings,
)
from storage.tenants.sign_ins import Role, Visitor
from storage.views.recent_traffic import read_names

_PATH = "/dashboard/settings"
READ_ONLY = "You are signed in to read: nothing was changed."
CHANGED = (
    "Nothing was saved yet: somebody changed these settings after this page was loaded. What you"
    " typed is kept; what is stored now stands beside it. Save again to store yours."
)
_ON_LINES = "One a line."
_NAMES_OFFERED = 50

# What a new project sets; the rest is folded while it is as by default.
_ALWAYS_OPEN = ("What is tested",)
GROUPS: Mapping[str, Sequence[Field]] = {
    "What is tested": (
        Field(
            name="default_metric",
            label="Default metric",
            hint="Target of a registration that names none.",
            offers_events=True,
        ),
        Field(
            name="guardrails",
            label="Guardrails",
            hint=f"Metrics that must not get worse. {_ON_LINES}",
            control="lines",
            reads=lines,
        ),
        Field(
            name="locked",
            label="Kept for the project",
            hint="What a registration cannot choose: target_metric, guardrails (it may add some),"
            f" routes, control_commit, value. {_ON_LINES}",
            control="lines",
            reads=lines,
        ),
        Field(
            name="default_branch",
            label="Default branch",
            hint="Commits of one branch are attempts at one change, but not those of this one.",
        ),
        Field(
            name="unit",
            label="Unit",
            hint="The unit that is randomized.",
            control="choice",
            choices={"session": "Session", "user": "User"},
        ),
        Field(
            name="segments",
            label="Segments",
            hint="Properties of events, three at most, such as a platform: where the arms share"
            f" their values unequally, units are compared within each. {_ON_LINES}",
            control="lines",
            reads=lines,
        ),
        Field(
            name="sample_rate",
            label="Sample rate",
            hint="Share of units whose events are stored: 0.1 is one in ten, the same in both arms."
            " A lower one takes effect as the experiments end that are open now.",
            reads=number,
        ),
    ),
    "How it is decided": (
        Field(
            name="alpha",
            label="Level of the test",
            hint="How often a change without effect may be called one: 0.05 is one in twenty.",
            reads=number,
        ),
        Field(
            name="typical_lifts",
            label="Typical lifts",
            hint="One to four, relative, that changes typically have. The test is quickest for"
            " these; 0.2, 0.5 means 20 % and 50 %.",
            reads=numbers,
        ),
        Field(
            name="futility_margin",
            label="Futility margin",
            hint="Share of control’s rate within which a lift is not worth waiting for;"
            " none turns it off.",
            reads=number,
            nothing="none",
        ),
        Field(
            name="horizon_days",
            label="Horizon, in days",
            hint="After so many days of exposure an experiment is decided in any case.",
            reads=whole,
        ),
        Field(
            name="reward_days",
            label="Days to the effect",
            hint="So many days after its start an experiment’s effect is final, fit to train on.",
            reads=whole,
        ),
        Field(
            name="warmup_minutes",
            label="Warm-up, in minutes",
            hint="Units of so many first minutes are in neither arm, while caches fill.",
            reads=whole,
        ),
        Field(
            name="contrast_hours",
            label="Hours without a comparison",
            hint="An experiment is closed when for so long units came, but not to both arms.",
            reads=whole,
        ),
        Field(
            name="grace_seconds",
            label="Grace, in seconds",
            hint="How long a block waits for late events.",
            reads=whole,
        ),
    ),
    "Whom it believes": (
        Field(
            name="allowed_origins",
            label="Allowed origins",
            hint=f"Sites whose pages may send events from browsers; none named: all. {_ON_LINES}",
            control="lines",
            reads=lines,
            example="https://shop.example",
        ),
        Field(
            name="trusted_proxies",
            label="Trusted proxies",
            hint=f"Networks whose X-Forwarded-For is believed. {_ON_LINES}",
            control="lines",
            reads=lines,
            example="10.0.0.0/8",
        ),
        Field(
            name="owner_groups",
            label="Groups of owners",
            hint=f"Groups of your directory whose members may change settings. {_ON_LINES}",
            control="lines",
            reads=lines,
        ),
        Field(
            name="reader_groups",
            label="Groups of readers",
            hint=f"Groups of your directory whose members may read these pages. {_ON_LINES}",
            control="lines",
            reads=lines,
        ),
        Field(
            name="name_header",
            label="Header of the name",
            hint="The header in which a trusted proxy tells a visitor's name.",
        ),
        Field(
            name="groups_header",
            label="Header of the groups",
            hint="The header in which it tells the visitor's groups, parted by commas.",
        ),
        Field(
            name="trusted_identity",
            label="Trusted identity",
            hint="Only events sent with the write key tell which user a session is of.",
            control="check",
            reads=ticked,
        ),
        Field(
            name="signed_assignments",
            label="Signed assignments",
            hint="Arms, outcomes and users count only with the write key, or your router’s token.",
            control="check",
            reads=ticked,
        ),
        Field(
            name="ofrep",
            label="Remote evaluation",
            hint="Whom OpenFeature’s protocol hands arms out to: off, server (the write key), or"
            " browser (the public key too, unsigned).",
        ),
        Field(
            name="assignment_epochs",
            label="Assignment epochs",
            hint="Numbers of the keys that such tokens may be signed with; the first is the"
            " router’s. Commas part them.",
            reads=whole_numbers,
        ),
        Field(
            name="rate_limits.per_key",
            label="Requests a minute of one key",
            reads=whole,
        ),
        Field(
            name="rate_limits.per_address",
            label="Requests a minute of one address",
            reads=whole,
        ),
        Field(
            name="rate_limits.registrations_per_key",
            label="Registrations a minute of one key",
            reads=whole,
        ),
    ),
}
FIELDS: Sequence[Field] = [field for group in GROUPS.values() for field in group]


@dataclass(frozen=True, kw_only=True)
class _Refused:
    """The typed text that was not stored, and why; faults of no single field have no name."""

    status: int
    texts: Texts
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    note: str | None = None
    meanwhile: Texts | None = None


async def get_settings(request: Request) -> Response:
    """Return the page of the simple settings."""
    _, (settings, names) = await read_for_visitor(
        request,
        lambda connection, visitor: (
            read_settings(connection, visitor.project_id),
            seen_names(connection, visitor),
        ),
    )
    return _page(request, settings, names)


def seen_names(connection: Connection, visitor: Visitor) -> Sequence[str]:
    """Returns the names of events that came to the visitor's project, the newest first."""
    return read_names(connection, visitor.project_id)[:_NAMES_OFFERED]


async def post_settings(request: Request) -> Response:
    """Store the typed settings, or return the page with the fault beside each wrong field."""
    form = await posted(request)

    def changing(
        connection: Connection, visitor: Visitor
    ) -> tuple[Settings, Sequence[str], _Refused | None]:
        settings = parse_settings(lock_settings(connection, visitor.project_id))
        refused = _change(connection, visitor, settings, form)
        return settings, seen_names(connection, visitor), refused

    _, (settings, names, refused) = await read_for_visitor(request, changing)
    if refused is None:
        return RedirectResponse(f"{_PATH}?saved", status_code=303)
    return _page(request, settings, names, refused)


def _change(
    connection: Connection, visitor: Visitor, settings: Settings, form: Form
) -> _Refused | None:
    """Stores the typed settings; returns the refusal, or None."""
    texts = form.texts(FIELDS)
    if visitor.role is not Role.OWNER:
        return _Refused(status=403, texts=texts, note=READ_ONLY)
    shown = _shown(settings)
    if form.text("seen") != digest_of(shown):
        return _Refused(status=409, texts=texts, note=CHANGED, meanwhile=texts_of(FIELDS, shown))
    typed = document(FIELDS, texts)
    # What nobody changed may have been stored before its rule stood.
    faults = _faults({name: value for name, value in typed.items() if value != shown[name]})
    if not faults:
        changed = {
            member: value for member, value in typed.items() if not _is(shown, member, value)
        }
        try:
            apply_settings(connection, visitor.project_id, changed, by=visitor.actor)
        except Invalid as refusal:
            # Members that can't stand together.
            faults = faults_of(FIELDS, refusal)
    return _Refused(status=422, texts=texts, faults=faults) if faults else None


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


def _is(shown: Mapping[str, Any], member: str, value: object) -> bool:
    """Returns whether a member is so already: an unchanged member keeps its default."""
    return _shown(parse_settings({member: value}))[member] == shown[member]


def _page(
    request: Request,
    settings: Settings,
    names: Sequence[str],
    refused: _Refused | None = None,
) -> Response:
    shown = _shown(settings)
    now = refused or _Refused(status=200, texts=texts_of(FIELDS, shown))
    usual = texts_of(FIELDS, _shown(Settings()))
    groups = [
        _group(
            title,
            shown_fields(fields, now.texts, faults=now.faults, meanwhile=now.meanwhile),
            usual,
        )
        for title, fields in GROUPS.items()
    ]
    return page(
        request,
        "settings.html",
        status=now.status,
        groups=groups,
        names=names,
        seen=digest_of(shown),
        note=now.note or now.faults.get(""),
        wrong=sum(bool(name) for name in now.faults),
        saved="saved" in request.query_params,
    )


@dataclass(frozen=True, kw_only=True)
class _Group:
    """A group of the form.

    Attributes:
        title: Its heading.
        fields: Its fields as they are shown.
        changed: How many of them are not as by default.
        is_advanced: Whether it is folded while there is nothing to see in it.
        is_open: Whether it holds a changed value, or a field that was refused.
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
