"""Kinds of entries: metrics, values and webhooks, and the other settings as a single entry."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from api.dashboard.page.form import Field, digest_of
from api.dashboard.settings.fields import fields_of
from domain.metric import Metric
from storage.tenants.settings import Settings, ValueRoute, parse_settings
from storage.tenants.webhook import Webhook

Row = Mapping[str, Any]
_DECLARED = fields_of(Settings)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A setting that is made of entries.

    Attributes:
        groups: The titles of groups of fields, by the first field of each.
    """

    member: str
    singular: str
    fields: Sequence[Field]
    key: Callable[[Row], str]
    name: Callable[[Row], str]
    groups: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def declared(self) -> Field:
        """The words of the setting: its label heads the page, and its hint leads it."""
        return next(field for field in _DECLARED if field.name == self.member)

    @property
    def is_named(self) -> bool:
        """Whether each entry has a name of its own."""
        return self.fields[0].name == "name"

    def rows(self, stored: Mapping[str, Any]) -> list[dict[str, object]]:
        """Returns the entries as they are stored; a named entry with its name."""
        entries = stored.get(self.member, [])
        if isinstance(entries, Mapping):
            named: Mapping[str, Mapping[str, Any]] = entries
            return [{"name": name, **members} for name, members in sorted(named.items())]
        return [dict(row) for row in entries]

    def chosen(self, stored: Mapping[str, object], rows: Sequence[Row]) -> dict[str, object]:
        """Returns the settings that change with the entries."""
        del stored
        if not self.is_named:
            return {self.member: list(rows)}
        entries = {
            row.get("name", ""): {name: value for name, value in row.items() if name != "name"}
            for row in rows
        }
        return {self.member: entries}

    @property
    def usual(self) -> Row:
        """The members of an entry in which nothing was chosen."""
        return {}


class _Remaining(Kind):
    """The settings that are no entries: a single entry, which is always there."""

    def rows(self, stored: Mapping[str, object]) -> list[dict[str, object]]:
        """Returns the settings, with the defaults of those that are not stored."""
        members = {field.name.partition(".")[0] for field in self.fields}
        settings: dict[str, Any] = msgspec.to_builtins(parse_settings(stored))
        return [{name: value for name, value in settings.items() if name in members}]

    def chosen(self, stored: Mapping[str, object], rows: Sequence[Row]) -> dict[str, object]:
        """Returns the settings that change; a member that is so already keeps its default."""
        before = self.rows(stored)[0]
        return {name: value for name, value in rows[0].items() if value != before[name]}

    @property
    def usual(self) -> Row:
        """The settings of a project in which nothing was chosen."""
        return self.rows({})[0]


_NAME = Field(
    name="name",
    label="Name",
    hint="Renaming it renames it in default metric, guardrails and values too. Experiments that"
    " have met their deploy keep the old name.",
    mentions=("metrics", "default_metric", "guardrails", "value_routes"),
    example="order_placed",
    offers_events=True,
)
GENERAL = _Remaining(
    member="",
    singular="settings",
    fields=[field for field in _DECLARED if field.control != "entries"],
    key=lambda _: "",
    name=lambda _: "",
    groups={
        "default_metric": "What is tested",
        "alpha": "How it is decided",
        "allowed_origins": "Which events and senders count",
    },
)
METRICS = Kind(
    member="metrics",
    singular="metric",
    fields=(_NAME, *fields_of(Metric, optional=True)),
    key=lambda row: row["name"],
    name=lambda row: row["name"],
)
VALUES = Kind(
    member="value_routes",
    singular="value",
    fields=fields_of(ValueRoute, optional=True),
    key=digest_of,
    name=lambda row: row["metric"],
)
WEBHOOKS = Kind(
    member="webhooks",
    singular="webhook",
    fields=fields_of(Webhook, optional=True),
    key=lambda row: msgspec.convert(row, Webhook).target,
    name=lambda row: msgspec.convert(row, Webhook).shown,
)
KINDS: Mapping[str, Kind] = {
    "": GENERAL,
    "/metrics": METRICS,
    "/values": VALUES,
    "/webhooks": WEBHOOKS,
}
