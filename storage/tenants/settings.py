"""A project's settings: its choices, the defaults for the rest, and their rules."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, inspect
from sqlalchemy import Connection, select, text, update

from domain.document import form_field
from domain.metric import Metric, Property
from domain.policy import KeepWhen, Suspicion
from storage.postgres.refusal import Invalid, Missing
from storage.schema.tables import projects
from storage.tenants.setting_rule import broken_rule
from storage.tenants.webhook import MOST_WEBHOOKS, Webhook

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Share = Annotated[float, Meta(gt=0, lt=1)]
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
_NO_UNIT = (
    r"^(?!.*([Tt]race|[Ss]pan|[Rr]equest)[._-]?[Ii]d$)(?!(k8s|host|container|process|service)\.)"
)
Unit = Annotated[
    str,
    Meta(
        pattern=rf"{_NO_UNIT}(?!(session_id|user_ref)$)[A-Za-z0-9_.-]{{1,64}}$",
        extra={
            "rule": "auto, session, user, or the name of a property, of 1 to 64 letters, digits,"
            " _, - and ., but of no trace, span, request, pod, host or container"
        },
    ),
]
SpanUnit = Annotated[
    str,
    Meta(
        pattern=rf"{_NO_UNIT}[^\s\x00]{{1,128}}$",
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
# Not its key: revenue events refer to it. The clock is read once the lock is held.
_LOCK, _LOCK_SHARED = (
    text(f"""
SELECT settings, clock_timestamp() AS at, set_config('plan_cache_mode', :plans, true)
FROM (SELECT settings FROM projects WHERE project_id = :id FOR {strength} OFFSET 0) AS locked
""")
    for strength in ("NO KEY UPDATE", "SHARE")
)


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
        Unit,
        form_field(
            "Unit",
            "What the router keeps in an arm: session, user, or a property of your events, such as"
            " account or run; auto: session or user, by the sessions received.",
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
    keep_when: Annotated[
        KeepWhen,
        form_field(
            "Keep when",
            "Whether a keep has its own evidence alone, or stands beside all that was judged in 30"
            " days, so that at most a tenth of the keeps is false.",
            choices={"alone": "It holds alone", "stands": "It stands beside the others"},
            frozen="whole",
        ),
    ] = "alone"
    patience_hours: Annotated[
        int,
        Meta(ge=24, le=672),
        form_field(
            "Patience",
            "Hours that a change which is better waits until it stands; then it ends unanswered.",
            frozen="whole",
        ),
    ] = 168
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

    @property
    def unit_property(self) -> str | None:
        """The property of events that names the unit; None where sessions or users are units."""
        return None if self.unit in ("auto", "session", "user") else self.unit

    def __post_init__(self) -> None:
        """Holds the rules between members: a token vouches for a session; webhooks differ."""
        if self.signed_assignments and self.unit not in ("auto", "session"):
            raise ValueError(
                f"signed_assignments vouches for sessions: with unit `{self.unit}`,"
                " trusted_identity keeps forged units out"
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


def stored_settings(
    connection: Connection, project_id: int, *, lock: bool = False
) -> dict[str, Any]:
    """Returns a project's choices, without defaults; locked until the transaction ends if asked."""
    query = select(projects.c.settings).where(projects.c.project_id == project_id)
    stored = connection.execute(query.with_for_update() if lock else query)
    if (settings := stored.scalar_one_or_none()) is None:
        raise Missing("unknown_project", f"there is no project {project_id}")
    return settings


def store_settings(connection: Connection, project_id: int, chosen: Mapping[str, object]) -> None:
    """Stores all choices of a project, which are valid and locked."""
    connection.execute(
        update(projects).where(projects.c.project_id == project_id).values(settings=chosen)
    )


@dataclass(frozen=True, kw_only=True)
class LockedProject:
    """A project that is locked: its choices of settings, without defaults, and since when."""

    settings: dict[str, Any]
    at: datetime


def lock_project(
    connection: Connection, project_id: int, *, shared: bool = False, planned: bool = False
) -> LockedProject:
    """Lets a single transaction at a time record deploys and register experiments of a project.

    Args:
        shared: Whether others that ask for that go on too: none of them binds an experiment.
        planned: Whether the rest of the transaction plans no text anew: it finds rows by ids.
    """
    asked = {"id": project_id, "plans": "force_generic_plan" if planned else "auto"}
    row = connection.execute(_LOCK_SHARED if shared else _LOCK, asked).one()
    return LockedProject(settings=row.settings, at=row.at)
