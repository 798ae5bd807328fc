"""A project's settings: what it chose, the defaults for the rest, and their rules."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from sqlalchemy import Connection, select, update

from storage.metric import Metric
from storage.refusal import Invalid, Missing
from storage.tables import projects
from storage.webhook import MOST_WEBHOOKS, Webhook

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Epoch = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class ValueRoute(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one conversion of a metric is worth on a route."""

    metric: Name
    value_per_conversion: Annotated[float, msgspec.Meta(ge=0)]
    route: str = "*"
    currency: str = "USD"


class RateLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests a minute that are admitted."""

    per_key: Annotated[int, msgspec.Meta(ge=1)] = 600_000
    per_address: Annotated[int, msgspec.Meta(ge=1)] = 60_000


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a project; an experiment freezes what its verdict reads."""

    default_metric: Name = "activation"
    metrics: dict[Name, Metric] = {}
    guardrails: list[Name] = msgspec.field(default_factory=lambda: ["error"])
    grace_seconds: Annotated[int, msgspec.Meta(ge=0, le=3600)] = 120
    contrast_hours: Annotated[int, msgspec.Meta(ge=1, le=672)] = 24
    trusted_identity: bool = False
    signed_assignments: bool = False
    # The keys that tokens may be signed with, by number; routers sign with the first.
    assignment_epochs: Annotated[list[Epoch], msgspec.Meta(min_length=1, max_length=4)] = (
        msgspec.field(default_factory=lambda: [1])
    )
    webhooks: Annotated[list[Webhook], msgspec.Meta(max_length=MOST_WEBHOOKS)] = []
    value_routes: list[ValueRoute] = []
    allowed_origins: list[str] = []
    rate_limits: RateLimits = RateLimits()
    unit: Literal["session", "user"] = "session"
    alpha: Share = 0.05
    # TOML has no null: `none` turns it off too.
    futility_margin: Share | Literal["none"] | None = 0.05
    horizon_days: Annotated[int, msgspec.Meta(ge=1, le=60)] = 28
    trusted_proxies: list[str] = []

    def __post_init__(self) -> None:
        """Holds the rules between members: a token vouches for a session; webhooks differ."""
        if self.signed_assignments and self.unit == "user":
            raise ValueError(
                "signed_assignments vouches for sessions: with unit `user`, trusted_identity"
                " keeps forged units out"
            )
        if len({webhook.target for webhook in self.webhooks}) < len(self.webhooks):
            raise ValueError("two webhooks have the same address and format")


_MEMBER = re.compile(r" - at `\$(?P<path>[^`]*)`$")


def _pointer(path: str) -> str:
    return "/" + path.replace("[", ".").replace("]", "").strip(".").replace(".", "/")


def parse_settings(chosen: Mapping[str, object]) -> Settings:
    """Returns the settings of a project that chose these members.

    Raises:
        Invalid: A member is unknown or breaks its rule; the pointer names it.
    """
    try:
        return msgspec.convert(chosen, Settings)
    except msgspec.ValidationError as error:
        message = str(error)
        found = _MEMBER.search(message)
        pointer = _pointer(found["path"]) if found else ""
        raise Invalid("invalid_setting", _MEMBER.sub("", message), pointer=pointer) from error


def read_settings(connection: Connection, project_id: int) -> Settings:
    """Returns the settings of a project, defaults filled in."""
    chosen = connection.execute(
        select(projects.c.settings).where(projects.c.project_id == project_id)
    ).scalar_one_or_none()
    if chosen is None:
        raise Missing("unknown_project", f"there is no project {project_id}")
    return parse_settings(chosen)


def apply_settings(
    connection: Connection, project_id: int, chosen: Mapping[str, object]
) -> Settings:
    """Replaces the named members of a project's settings; the others stay as they are.

    Raises:
        Invalid: A member is unknown or breaks its rule; nothing is stored.
    """
    stored = connection.execute(
        select(projects.c.settings).where(projects.c.project_id == project_id).with_for_update()
    ).scalar_one_or_none()
    if stored is None:
        raise Missing("unknown_project", f"there is no project {project_id}")
    merged = {**stored, **chosen}
    settings = parse_settings(merged)
    connection.execute(
        update(projects).where(projects.c.project_id == project_id).values(settings=merged)
    )
    return settings


def settings_document(settings: Settings) -> dict[str, object]:
    """Returns settings as plain JSON values, for showing; of a webhook's address the host alone."""
    document: dict[str, object] = json.loads(msgspec.json.encode(settings))
    document["webhooks"] = [
        {**msgspec.to_builtins(webhook), "url": webhook.shown} for webhook in settings.webhooks
    ]
    return document
