"""Kinds of entries: the forms of metrics, values and webhooks, and the facts that pages list."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from api.dashboard.page.form import Field, digest_of, lines, number, rates, whole
from domain.figures import counted
from domain.metric import DAY, HOUR, MINUTE, Metric, metric_definition
from storage.tenants.webhook import EVENTS, MOST_WEBHOOKS, TOKEN_PREFIX, Webhook

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A setting that is made of entries.

    Attributes:
        member: The setting.
        title: The heading of its page.
        singular: The word for an entry.
        lead: The page's first paragraph.
        fields: The fields of an entry.
        key: Returns the identity of an entry in a form.
        name: Returns the name of an entry on the page.
        facts: Returns the facts of an entry that the page lists.
    """

    member: str
    title: str
    singular: str
    lead: str
    fields: Sequence[Field]
    key: Callable[[Row], str]
    name: Callable[[Row], str]
    facts: Callable[[Row], list[str]]

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
        *(["a mean"] if definition["kind"] == "mean" else []),
        *([f"capped at {definition['cap']:g}"] if definition["cap"] is not None else []),
        *([] if margin == "default" else [f"margin {'none' if margin is None else margin}"]),
    ]


_MEANINGS = {
    "decided": "a verdict stands",
    "closed": "it ended without a verdict",
    "breached": "a guardrail got worse, before any verdict",
    "set_up_fault": "the arms cannot be compared",
    "base_moved": "users got another build than the one that a canary stands on",
}


def _words(event: str) -> str:
    return event.replace("_", " ")


def _facts_of_webhook(row: Row) -> list[str]:
    webhook = msgspec.convert(row, Webhook)
    return [
        webhook.format,
        "receives " + ", ".join(_words(event) for event in webhook.events),
        *([f"token in {webhook.token_variable}"] if webhook.token_variable else []),
    ]


METRICS = Kind(
    member="metrics",
    title="Metrics",
    singular="metric",
    lead="A metric that is not named here counts the events of its own name.",
    fields=(
        Field(
            name="name",
            label="Name",
            hint="Renaming it renames it in default metric, guardrails and values too. Experiments"
            " that have met their deploy keep the old name.",
            mentions=("metrics", "default_metric", "guardrails", "value_routes"),
            example="order_placed",
            offers_events=True,
        ),
        Field(
            name="sources",
            label="Events that count",
            hint="One a line; none named: those of the metric’s own name.",
            control="lines",
            offers_events=True,
            reads=lines,
            optional=True,
        ),
        Field(
            name="window_seconds",
            label="Window, in seconds",
            hint="How long after its exposure a unit’s events count: a multiple of 300, at most"
            " 2,419,200 (28 days). Empty: 1,800 (half an hour), or as fits a name that is known.",
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
            name="grace_seconds",
            label="Grace, in seconds",
            hint="How long its events may be under way, at most 604,800 (7 days): for outcomes that"
            " a warehouse or a nightly export brings. Empty: the project’s.",
            reads=whole,
            optional=True,
            advanced=True,
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
            advanced=True,
        ),
        Field(
            name="cap",
            label="Cap",
            hint="Of a mean: the most that one unit counts for.",
            reads=number,
            optional=True,
            advanced=True,
        ),
        Field(
            name="margin",
            label="Margin",
            hint="As a guardrail: the loss that is accepted. Empty: 20 % of control’s rate, or half"
            " a point; none waits for nothing.",
            reads=lambda text: text.strip() if text.strip() == "default" else number(text),
            optional=True,
            nothing="none",
            advanced=True,
        ),
        Field(name="currency", label="Currency", optional=True, example="USD", advanced=True),
        Field(
            name="rates",
            label="Rates of other currencies",
            hint="One a line, as JPY 0.0067: what one unit of it is worth in the metric’s currency."
            " Payments in others are left out, and counted by arm.",
            control="lines",
            reads=rates,
            optional=True,
            advanced=True,
        ),
    ),
    key=lambda row: row["name"],
    name=lambda row: row["name"],
    facts=_facts_of_metric,
)
VALUES = Kind(
    member="value_routes",
    title="Values",
    singular="value",
    lead="The value of a conversion, by metric and route. Verdicts show money at risk by it.",
    fields=(
        Field(name="metric", label="Metric", example="order_placed", offers_events=True),
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
    singular="webhook",
    lead=f"Receivers of verdicts, at most {MOST_WEBHOOKS}. An address may be a secret:"
    " only its host is shown.",
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
            choices={event: f"{_words(event)}: {_MEANINGS[event]}" for event in EVENTS},
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
KINDS: Mapping[str, Kind] = {"metrics": METRICS, "values": VALUES, "webhooks": WEBHOOKS}
