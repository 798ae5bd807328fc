"""A project's settings: its choices, the defaults for the rest, and their rules."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import ip_network
from typing import Annotated, Any, Literal
from unicodedata import normalize

import msgspec
from msgspec import Meta, inspect
from sqlalchemy import Connection, Select, select, update

from domain.document import form_field
from domain.metric import Metric, Property, composed_name
from domain.policy import Suspicion
from storage.postgres.refusal import Invalid, Missing
from storage.schema.tables import projects
from storage.tenants.audit_trail import PROGRAM, Actor, changes_between, record_action
from storage.tenants.receiver_address import (
    RefusedAddressError,
    private_receivers_allowed,
    require_host,
)
from storage.tenants.setting_rule import broken_rule
from storage.tenants.webhook import MOST_WEBHOOKS, Webhook, masked

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Unit = Literal["session", "user"]
# Relative: smaller ones take more traffic than anybody has, larger ones show in minutes.
Lift = Annotated[float, Meta(ge=0.01, le=2)]
Header = Annotated[
    str,
    Meta(pattern="^[A-Za-z0-9-]{1,64}$", extra={"rule": "a text of 1 to 64 letters, digits and -"}),
]
Group = Annotated[
    str,
    Meta(
        pattern="^[^,\\s](?:[^,]{0,126}[^,\\s])?$",
        extra={"rule": "a text of 1 to 128 characters without a comma"},
    ),
]
# A router keeps no visitor by a trace: his requests would be units that are not independent. Nor
# by a pod, of which a build has some: each would be in a single arm, and a unit once.
SpanUnit = Annotated[
    str,
    Meta(
        pattern=r"^(?!.*([Tt]race|[Ss]pan|[Rr]equest)[._-]?[Ii]d$)"
        r"(?!(k8s|host|container|process|service)\.)[^\s\x00]{1,128}$",
        extra={
            "rule": "the name of an attribute, and of no trace, span or request, of which a visitor"
            " makes many that are not independent, nor of a pod, host or container, which serve a"
            " build and no visitor"
        },
    ),
]
Groups = Annotated[list[Group], Meta(max_length=50)]
DOLLARS = "USD"
Epoch = Annotated[int, Meta(ge=1, le=1_000_000)]
Rate = Annotated[int, Meta(ge=1)]
# What a registration may not choose: who is judged does not choose the examiner.
Lockable = Literal[
    "target_metric", "guardrails", "routes", "control_commit", "value", "accept_harm", "patience"
]


class ValueRoute(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a conversion of a metric is worth on a route."""

    metric: Annotated[Name, form_field("Metric", example="order_placed", offers_events=True)]
    route: Annotated[
        str, form_field("Route", "As your graph names it; *: every route without its own.")
    ] = "*"
    value_per_conversion: Annotated[
        float, Meta(ge=0), form_field("Value of a conversion", example="40")
    ]
    currency: Annotated[str, form_field("Currency")] = DOLLARS

    @property
    def counts(self) -> bool:
        """Whether it is in dollars, as `value_at_risk` is; only a stored value may be in others."""
        return self.currency.upper() == DOLLARS


class RateLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests a minute that are admitted."""

    per_key: Annotated[Rate, form_field("Requests a minute of a key")] = 600_000
    per_address: Annotated[Rate, form_field("Requests a minute of an address")] = 60_000
    registrations_per_key: Annotated[Rate, form_field("Registrations a minute of a key")] = 120


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a project; an experiment freezes those that its verdict reads.

    Forms show them in this order (`api/dashboard/settings`), and refusals say the rules of their
    types (`setting_rule.py`). Their mark `frozen` says how a policy keeps them: `whole`, by the
    names that a registration chose (`named`), or as dollars `shown` beside the verdict.
    """

    default_metric: Annotated[
        Name,
        form_field(
            "Default metric",
            "Target of a registration that names none.",
            offers_events=True,
            frozen="named",
        ),
    ] = "activation"
    metrics: Annotated[
        dict[Name, Metric],
        form_field(
            "Metrics",
            "A metric that is not named here counts the events of its own name.",
            frozen="named",
        ),
    ] = {}
    guardrails: Annotated[
        list[Name], form_field("Guardrails", "Metrics that must not get worse.", frozen="named")
    ] = msgspec.field(default_factory=lambda: ["error"])
    locked: Annotated[
        list[Lockable],
        form_field(
            "Fixed by the project",
            "A registration may not choose these: target_metric, guardrails (it may add some),"
            " routes, control_commit, value; and of a place accept_harm, patience.",
            frozen="named",
        ),
    ] = msgspec.field(default_factory=lambda: ["guardrails"])
    default_branch: Annotated[
        str,
        Meta(min_length=1, max_length=256),
        form_field(
            "Default branch",
            "Commits of the same branch are attempts at the same change, but not of this branch.",
            frozen="whole",
        ),
    ] = "main"
    unit: Annotated[
        Literal["auto", "session", "user"],
        form_field(
            "Unit",
            "What the router keeps in an arm. Automatic: chosen by the sessions received.",
            choices={"auto": "Automatic", "session": "Session", "user": "User"},
            frozen="whole",
        ),
    ] = "auto"
    segments: Annotated[
        list[Property],
        Meta(max_length=3),
        form_field(
            "Segments",
            "Properties of events, three at most, such as a platform: where the arms share"
            " their values unequally, units are compared within each.",
            frozen="whole",
        ),
    ] = []
    span_event: Annotated[
        Name,
        form_field(
            "Event of a server span", "The name under which requests are stored.", frozen="whole"
        ),
    ] = "http.server.request"
    span_unit: Annotated[
        SpanUnit,
        form_field(
            "Unit of a server span",
            "The attribute that holds what the router draws by; where session.id is asked for and"
            " lacks, user.id as a pseudonym.",
        ),
    ] = "session.id"
    # Below 1 in 10,000 no experiment of a real shop would ever end by its evidence.
    sample_rate: Annotated[
        float,
        Meta(ge=0.0001, le=1),
        form_field(
            "Sample rate",
            "Share of units whose events are stored: 0.1 is 10 %, the same in both arms."
            " A lower share takes effect as the experiments end that are open now.",
            frozen="whole",
        ),
    ] = 1
    alpha: Annotated[
        Share,
        form_field(
            "Level of the test",
            "How often a change without effect may still get an answer: 0.05 is 5 %.",
            frozen="whole",
        ),
    ] = 0.05
    # Each is a component of the test.
    typical_lifts: Annotated[
        list[Lift],
        Meta(min_length=1, max_length=4),
        form_field(
            "Typical lifts",
            "Up to four, relative, that changes typically have. The test is quickest for"
            " these; 0.2, 0.5 means 20 % and 50 %.",
            frozen="whole",
        ),
    ] = msgspec.field(default_factory=lambda: [0.2, 0.5])
    # TOML has no null: `none` turns it off too.
    futility_margin: Annotated[
        Share | Literal["none"] | None,
        form_field(
            "Futility margin",
            "Share of control’s rate within which a lift is not worth waiting for; none turns"
            " it off.",
            frozen="whole",
        ),
    ] = 0.01
    horizon_days: Annotated[
        int,
        Meta(ge=1, le=366),
        form_field(
            "Horizon, in days",
            "After so many days of exposure an experiment is decided in any case.",
            frozen="whole",
        ),
    ] = 28
    # Nobody who makes a change chooses the moment of the number that is trained on.
    reward_days: Annotated[
        int,
        Meta(ge=1, le=60),
        form_field(
            "Days to the effect",
            "So many days after its start an experiment’s effect is final, fit to train on.",
            frozen="whole",
        ),
    ] = 7
    warmup_minutes: Annotated[
        int,
        Meta(ge=0, le=1440),
        form_field(
            "Warm-up, in minutes",
            "Units of so many first minutes are in neither arm, while caches fill.",
            frozen="whole",
        ),
    ] = 0
    flag_places: Annotated[
        int,
        Meta(ge=0, le=500),
        form_field(
            "Flag places",
            "How many changes are measured behind a flag at a time, where they ask for a place.",
        ),
    ] = 25
    contrast_hours: Annotated[
        int,
        Meta(ge=1, le=672),
        form_field(
            "Hours without a comparison",
            "An experiment is closed when for so long units came, but not to both arms.",
            frozen="whole",
        ),
    ] = 24
    grace_seconds: Annotated[
        int,
        Meta(ge=0, le=3600),
        form_field("Grace, in seconds", "How long a block waits for late events.", frozen="whole"),
    ] = 120
    allowed_origins: Annotated[
        list[str],
        form_field(
            "Allowed origins",
            "Sites whose pages may send events from browsers; none named: all.",
            example="https://shop.example",
        ),
    ] = []
    trusted_proxies: Annotated[
        list[str],
        form_field(
            "Trusted proxies", "Networks whose X-Forwarded-For is believed.", example="10.0.0.0/8"
        ),
    ] = []
    owner_groups: Annotated[
        Groups,
        form_field(
            "Groups of owners", "Groups of your directory whose members may change settings."
        ),
    ] = []
    reader_groups: Annotated[
        Groups,
        form_field(
            "Groups of readers", "Groups of your directory whose members may read these pages."
        ),
    ] = []
    name_header: Annotated[
        Header,
        form_field(
            "Header of the name", "The header in which a trusted proxy tells a visitor's name."
        ),
    ] = "X-Forwarded-Email"
    groups_header: Annotated[
        Header,
        form_field(
            "Header of the groups",
            "The header in which it tells the visitor's groups, parted by commas.",
        ),
    ] = "X-Forwarded-Groups"
    trusted_identity: Annotated[
        bool,
        form_field(
            "Trusted identity",
            "Only events sent with the write key tell which user a session is of.",
            frozen="whole",
        ),
    ] = False
    signed_assignments: Annotated[
        bool,
        form_field(
            "Signed assignments",
            "Arms, outcomes and users count only with the write key, or your router’s token.",
            frozen="whole",
        ),
    ] = False
    act_on_unvouched_breaches: Annotated[
        bool,
        form_field(
            "Act on unvouched breaches",
            "Workflows take a canary back by themselves also for a breach of events that anybody"
            " can send with the public key.",
        ),
    ] = False
    on_suspicion: Annotated[
        Suspicion,
        form_field(
            "On a suspicion",
            "What to do with a canary that is worse, unless units are lost: gates hold it, or"
            " workflows take it back.",
            choices={"pause": "Pause it", "roll_back": "Take it back"},
            frozen="whole",
        ),
    ] = "pause"
    verified_draws: Annotated[
        bool,
        form_field(
            "Verified draws",
            "The published draw gives the arms of flags, so that each unit is held against it.",
            frozen="whole",
        ),
    ] = False
    ofrep: Annotated[
        Literal["off", "server", "browser"],
        form_field(
            "Remote evaluation",
            "Whom OpenFeature’s protocol hands arms out to: off, server (the write key), or"
            " browser (the public key too, unsigned).",
        ),
    ] = "off"
    assignment_epochs: Annotated[
        list[Epoch],
        Meta(min_length=1, max_length=4),
        form_field(
            "Assignment epochs",
            "Numbers of the keys that such tokens may be signed with; the first is the"
            " router’s. Commas part them.",
        ),
    ] = msgspec.field(default_factory=lambda: [1])
    rate_limits: RateLimits = RateLimits()
    value_routes: Annotated[
        list[ValueRoute],
        form_field(
            "Values",
            "The value of a conversion, by metric and route. Verdicts show money at risk by it.",
            frozen="shown",
        ),
    ] = []
    webhooks: Annotated[
        list[Webhook],
        Meta(max_length=MOST_WEBHOOKS),
        form_field(
            "Webhooks",
            f"Receivers of verdicts, at most {MOST_WEBHOOKS}. An address may be a secret:"
            " only its host is shown.",
        ),
    ] = []

    def __post_init__(self) -> None:
        """Holds the rules between members: a token vouches for a session; webhooks differ."""
        if self.signed_assignments and self.unit == "user":
            raise ValueError(
                "signed_assignments vouches for sessions: with unit `user`, trusted_identity"
                " keeps forged units out"
            )
        if len({webhook.target for webhook in self.webhooks}) < len(self.webhooks):
            raise ValueError("two webhooks have the same address and format")


# To read the declaration takes milliseconds, and each binding asks.
@cache
def frozen_settings(*marks: str) -> frozenset[str]:
    """Returns the settings that policies freeze, by the mark of their declaration."""
    kind = inspect.type_info(Settings)
    assert isinstance(kind, inspect.StructType)  # noqa: S101 - for the type checker
    extra = {member.name: getattr(member.type, "extra", None) or {} for member in kind.fields}
    return frozenset(name for name, each in extra.items() if each.get("frozen") in marks)


_MEMBER = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`$")
# As browsers send it: no path, and names beyond ASCII as punycode.
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[\w.:\[\]-]+/?", re.ASCII | re.IGNORECASE)


def parse_settings(chosen: Mapping[str, object]) -> Settings:
    """Returns the settings of a project that chose these members.

    Raises:
        Invalid: A member is unknown or breaks its rule; the pointer names it.
    """
    try:
        return msgspec.convert(chosen, Settings)
    except msgspec.ValidationError as error:
        match = _MEMBER.search(str(error))
        detail, pointer = broken_rule(
            Settings,
            chosen,
            path=match["path"] if match else "",
            message=_MEMBER.sub("", str(error)),
            of_key=match is not None and match["key"] is not None,
        )
        raise Invalid("invalid_setting", detail, pointer=pointer) from error


def read_settings(connection: Connection, project_id: int) -> Settings:
    """Returns the settings of a project, defaults filled in."""
    return parse_settings(stored_settings(connection, project_id))


def chosen_settings(chosen: Mapping[str, object]) -> Settings:
    """Returns the settings of a project that chooses these members now.

    Stored addresses and values may break rules of a later release; newly chosen ones may not.

    Raises:
        Invalid: A member is unknown or breaks its rule; the pointer names it.
    """
    settings = parse_settings(chosen)
    _require_names(settings)
    for number, origin in enumerate(settings.allowed_origins):
        if not _ORIGIN.fullmatch(origin):
            detail = f"{origin!r} is no origin: write https://HOST[:PORT], without a path"
            raise Invalid("invalid_setting", detail, pointer=f"/allowed_origins/{number}")
    for number, network in enumerate(settings.trusted_proxies):
        if not _is_network(network):
            detail = f"{network!r} is no network: write 10.0.0.0/8, or an address"
            raise Invalid("invalid_setting", detail, pointer=f"/trusted_proxies/{number}")
    for number, value in enumerate(settings.value_routes):
        if not value.counts:
            detail = f"{value.currency!r} is refused: give the value in dollars ({DOLLARS})"
            raise Invalid("invalid_setting", detail, pointer=f"/value_routes/{number}/currency")
    _require_hosts(settings.webhooks)
    return settings


def _require_hosts(webhooks: Sequence[Webhook]) -> None:
    for number, webhook in enumerate(webhooks):
        try:
            require_host(webhook.host, private=private_receivers_allowed())
        except RefusedAddressError as refused:
            detail = f"{webhook.host}: {refused}"
            raise Invalid("invalid_setting", detail, pointer=f"/webhooks/{number}/url") from None


# Members that name metrics and events.
_NAMING = ("default_metric", "guardrails", "metrics", "value_routes")


def _composed(value: object) -> object:
    if isinstance(value, str):
        return normalize("NFC", value)
    if isinstance(value, list):
        return [_composed(item) for item in value]
    if isinstance(value, dict):
        return {_composed(key): _composed(item) for key, item in value.items()}
    return value


def _require_names(settings: Settings) -> None:
    """Refuses names that no event can have.

    Raises:
        Invalid: A member breaks the rule; the pointer names it.
    """
    named = [("/default_metric", settings.default_metric)]
    named += [(f"/guardrails/{place}", name) for place, name in enumerate(settings.guardrails)]
    for metric, definition in settings.metrics.items():
        named.append(("/metrics/*", metric))
        named += [
            (f"/metrics/*/sources/{place}", name)
            for place, name in enumerate(definition.sources or ())
        ]
    for pointer, name in named:
        try:
            composed_name(name)
        except ValueError as broken:
            raise Invalid("invalid_setting", f"a name {broken}", pointer=pointer) from None


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def stored_settings(connection: Connection, project_id: int) -> dict[str, Any]:
    """Returns a project's choices, without defaults."""
    return _stored(connection, select(projects.c.settings), project_id)


def _stored(
    connection: Connection, query: Select[dict[str, Any]], project_id: int
) -> dict[str, Any]:
    stored = connection.execute(query.where(projects.c.project_id == project_id))
    if (settings := stored.scalar_one_or_none()) is None:
        raise Missing("unknown_project", f"there is no project {project_id}")
    return settings


def lock_settings(connection: Connection, project_id: int) -> dict[str, Any]:
    """Returns a project's choices, locked until the transaction ends."""
    return _stored(connection, select(projects.c.settings).with_for_update(), project_id)


def store_settings(connection: Connection, project_id: int, chosen: Mapping[str, object]) -> None:
    """Stores all choices of a project, which are valid and locked."""
    connection.execute(
        update(projects).where(projects.c.project_id == project_id).values(settings=chosen)
    )


def apply_settings(
    connection: Connection, project_id: int, chosen: Mapping[str, object], *, by: Actor = PROGRAM
) -> Settings:
    """Replaces the named members of a project's settings; the others stay as they are.

    Raises:
        Invalid: A member is unknown or breaks its rule; nothing is stored.
    """
    stored = lock_settings(connection, project_id)
    merged = {**stored, **chosen}
    # Names as events are stored.
    merged |= {member: _composed(chosen[member]) for member in _NAMING if member in chosen}
    settings = parse_settings(merged)
    chosen_settings(chosen)
    store_settings(connection, project_id, merged)
    if changes := changes_between(_audited(stored), _audited(merged)):
        record_action(connection, project_id, "settings_changed", by=by, changes=changes)
    return settings


def _audited(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns stored choices with the defaults for the rest, and without secrets.

    Not parsed: choices that an earlier release took may break a rule of this release.
    """
    defaults: dict[str, Any] = msgspec.to_builtins(Settings())
    document = {**defaults, **stored}
    return {
        **document,
        "rate_limits": {**defaults["rate_limits"], **document["rate_limits"]},
        "webhooks": [masked(webhook) for webhook in document["webhooks"]],
    }


def metric_renamed(stored: Mapping[str, Any], old: str, new: str) -> dict[str, object]:
    """Returns the members that name a metric, beside its own, once it has a new name."""
    settings = parse_settings(stored)
    added: dict[str, object] = {}
    if settings.default_metric == old:
        added["default_metric"] = new
    if old in settings.guardrails:
        names = [new if name == old else name for name in settings.guardrails]
        added["guardrails"] = list(dict.fromkeys(names))
    if any(value.metric == old for value in settings.value_routes):
        added["value_routes"] = [
            {**row, "metric": new} if row["metric"] == old else row
            for row in stored["value_routes"]
        ]
    return added


def settings_document(settings: Settings) -> dict[str, object]:
    """Returns settings as plain JSON values, for showing; of a webhook's address the host alone."""
    document: dict[str, object] = json.loads(msgspec.json.encode(settings))
    document["webhooks"] = [
        {**msgspec.to_builtins(webhook), "url": webhook.shown} for webhook in settings.webhooks
    ]
    return document
