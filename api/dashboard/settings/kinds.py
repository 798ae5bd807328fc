"""Kinds of entries: the forms of metrics, values and webhooks, and the facts that pages list."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from api.dashboard.page.form import Field, digest_of
from api.dashboard.settings.fields import fields_of
from domain.figures import counted
from domain.metric import DAY, HOUR, MINUTE, Metric, metric_definition
from storage.tenants.settings import Settings, ValueRoute
from storage.tenants.webhook import Webhook

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A setting that is made of entries.

    Attributes:
        singular: The word for an entry.
        fields: The fields of an entry.
        key: Returns the identity of an entry in a form.
        name: Returns the name of an entry on the page.
        facts: Returns the facts of an entry that the page lists.
    """

    member: str
    singular: str
    fields: Sequence[Field]
    key: Callable[[Row], str]
    name: Callable[[Row], str]
    facts: Callable[[Row], list[str]]

    @property
    def declared(self) -> Field:
        """The words of the setting: its label heads the page, and its hint leads it."""
        return next(field for field in fields_of(Settings) if field.name == self.member)

    def rows(self, stored: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns the entries as they are stored; a named entry with its name."""
        entries = stored.get(self.member, [])
        if isinstance(entries, Mapping):
            named: Mapping[str, Mapping[str, Any]] = entries
            return [{"name": name, **members} for name, members in sorted(named.items())]
        return [dict(row) for row in entries]

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
            return counted(seconds // size, unit)
    return f"{seconds} seconds"


def _facts_of_metric(row: Row) -> list[str]:
    chosen = {name: value for name, value in row.items() if name != "name"}
    definition: dict[str, Any] = metric_definition(
        row["name"], {row["name"]: msgspec.convert(chosen, Metric)}
    )
    margin = definition["margin"]
    return [
        "counts " + ", ".join(definition["sources"]),
        f"within {_window(definition['window_seconds'])}",
        f"{definition['better']} is better",
        *(
            f"where {name} is {' or '.join(values)}"
            for name, values in definition.get("where", {}).items()
        ),
        *(["a mean"] if definition["kind"] == "mean" else []),
        *(["over " + ", ".join(definition["per"])] if "per" in definition else []),
        *([f"capped at {definition['cap']:g}"] if definition["cap"] is not None else []),
        *([] if margin == "default" else [f"margin {'none' if margin is None else margin}"]),
    ]


def _facts_of_webhook(row: Row) -> list[str]:
    webhook = msgspec.convert(row, Webhook)
    return [
        webhook.format,
        "receives " + ", ".join(event.replace("_", " ") for event in webhook.events),
        *([f"token in {webhook.token_variable}"] if webhook.token_variable else []),
    ]


_NAME = Field(
    name="name",
    label="Name",
    hint="Renaming it renames it in default metric, guardrails and values too. Experiments that"
    " have met their deploy keep the old name.",
    mentions=("metrics", "default_metric", "guardrails", "value_routes"),
    example="order_placed",
    offers_events=True,
)
METRICS = Kind(
    member="metrics",
    singular="metric",
    fields=(_NAME, *fields_of(Metric, optional=True)),
    key=lambda row: row["name"],
    name=lambda row: row["name"],
    facts=_facts_of_metric,
)
VALUES = Kind(
    member="value_routes",
    singular="value",
    fields=fields_of(ValueRoute, optional=True),
    key=digest_of,
    name=lambda row: row["metric"],
    facts=lambda row: [
        "every route without its own" if row.get("route", "*") == "*" else f"on {row['route']}",
        f"{row['value_per_conversion']:g} {row.get('currency', 'USD')} a conversion",
    ],
)
WEBHOOKS = Kind(
    member="webhooks",
    singular="webhook",
    fields=fields_of(Webhook, optional=True),
    key=lambda row: msgspec.convert(row, Webhook).target,
    name=lambda row: msgspec.convert(row, Webhook).shown,
    facts=_facts_of_webhook,
)
KINDS: Mapping[str, Kind] = {"metrics": METRICS, "values": VALUES, "webhooks": WEBHOOKS}
