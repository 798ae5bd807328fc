"""A metric: which events count, on which side, and for how long after the exposure."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, structs

from domain.absence import NOTHING_RULE, is_nothing
from domain.cause import Cause
from domain.currency import CODES, conversion_factor
from domain.document import Document, form_field
from domain.millionths import LARGEST_VALUE

MINUTE, HOUR, DAY = 60, 3600, 86_400
WINDOW_STEP = 5 * MINUTE
LONGEST_WINDOW = 28 * DAY
LONGEST_GRACE = 7 * DAY

LONGEST_NAME = 128
NAME_RULE = "must be 1 to 128 characters without line breaks, and without spaces around them"

# An outcome counts as after the window where it comes within so many windows.
AFTER_WINDOWS = 4

# Picks are compared by where they stand among their unit's events: in classes that begin here.
POSITIONS = (1, 2, 3, 5)
PICKED = " picked"

# A guardrail's thresholds, each a quantile of its history.
MOST_QUANTILES = 4
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d)?)")

# Outcomes before an exposure count within the window, and at most so far back: each tick reads so
# much of the log again, and few sessions last longer.
LONGEST_BEFORE = HOUR

# The same metric after a quarter of its window, where that is at least so long: what its units did
# so far is seen days before the window closes (docs/statistics.md, 'Slow metrics').
SO_FAR = "so_far"
SLOW_WINDOW = 4 * DAY

# Companions of users: who has a history, and of a mean that is adjusted what it comes to; and that
# with the value.
HISTORY, WITH_HISTORY = "history", "with_history"
BEFORE_CANARY = " before the canary"

# The eight revenue and funnel events, by whether they move money.
MONETARY = frozenset({"trial_to_paid", "subscription_renewed", "expansion"})
PERHAPS_MONETARY = frozenset({"subscription_churned"})
FUNNEL = frozenset({"signup_completed", "trial_started", "paywall_viewed", "activation"})
REVENUE_EVENTS = MONETARY | PERHAPS_MONETARY | FUNNEL

# docs/statistics.md, 'Counts': windows that fit what the events are.
_WINDOWS = {
    "error": 5 * MINUTE,
    "signup_completed": DAY,
    "trial_to_paid": 14 * DAY,
    "subscription_renewed": 14 * DAY,
    "subscription_churned": 14 * DAY,
    "expansion": 14 * DAY,
}
_LOWER_IS_BETTER = {"error", "subscription_churned"}

Property = Annotated[
    str,
    Meta(
        pattern="^[A-Za-z0-9_-]{1,64}$",
        extra={"rule": "a text of 1 to 64 letters, digits, _ and -"},
    ),
]
MOST_PROPERTIES = 3
# A number that engines write alike as text; of others they choose their own form.
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_PLAIN_NUMBER = re.compile(r"0|-?[1-9]\d{0,14}")


@lru_cache(maxsize=4096)
def composed_name(name: str) -> str:
    """Returns a name in NFC: an accent is typed as a single character or as two.

    Raises:
        ValueError: It breaks the rule of names, or is a word for nothing; the message is the rule.
    """
    composed = unicodedata.normalize("NFC", name)
    if (
        not 1 <= len(composed) <= LONGEST_NAME
        or composed != composed.strip()
        or len(composed.splitlines()) > 1
    ):
        raise ValueError(NAME_RULE)
    if is_nothing(composed):
        raise ValueError(NOTHING_RULE)
    return composed


class Metric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric as a project defines it; absent members take the defaults of its name."""

    sources: Annotated[
        list[str] | None,
        form_field(
            "Events that count",
            "A name a line; none named: those of the metric’s own name.",
            offers_events=True,
        ),
    ] = None
    window_seconds: Annotated[
        int | None,
        form_field(
            "Window, in seconds",
            "How long after its exposure a unit’s events count: a multiple of 300, at most"
            " 2,419,200 (28 days). Empty: 1,800 (half an hour), or as fits a name that is known.",
        ),
    ] = None
    better: Annotated[
        Literal["higher", "lower"] | None,
        form_field(
            "Which is better", choices={"": "By its name", "higher": "Higher", "lower": "Lower"}
        ),
    ] = None
    window: Annotated[
        dict[Literal["from", "to"], str] | None,
        form_field(
            "Window that starts later",
            "In place of the window: of a conversion, from and to when after its exposure a unit’s"
            " events count, a line each, as from 7d and to 14d.",
            folded=True,
        ),
    ] = None
    grace_seconds: Annotated[
        int | None,
        form_field(
            "Grace, in seconds",
            "How long its events may be under way, at most 604,800 (7 days): for outcomes that a"
            " warehouse or a nightly export brings. Empty: the project’s.",
            folded=True,
        ),
    ] = None
    kind: Annotated[
        Literal["conversion", "mean", "ratio"],
        form_field(
            "What is compared",
            choices={
                "conversion": "Share of units that convert",
                "mean": "Mean amount a unit",
                "ratio": "Events over other events",
            },
            folded=True,
        ),
    ] = "conversion"
    per: Annotated[
        list[str] | None,
        form_field(
            "Over events",
            "Of a ratio: the events that it is taken over, a name a line, as requests of errors."
            " They count whatever their properties are.",
            offers_events=True,
            folded=True,
        ),
    ] = None
    cap: Annotated[
        float | None, form_field("Cap", "Of a mean: the most that a unit counts for.", folded=True)
    ] = None
    over: Annotated[
        str | float | list[str | float] | None,
        form_field(
            "Counts where its value exceeds",
            "A number, or a quantile of the 28 days before, as p99. Of a unit its first event with"
            " a value counts. As a guardrail several quantiles too: p50, p90, p95, p99.",
            folded=True,
        ),
    ] = None
    margin: Annotated[
        float | Literal["default", "none"] | None,
        form_field(
            "Margin",
            "As a guardrail: the loss that is accepted. Empty: 20 % of control’s rate, or half a"
            " point; none waits for nothing.",
            folded=True,
        ),
    ] = "default"
    currency: Annotated[str | None, form_field("Currency", example="USD", folded=True)] = None
    where: Annotated[
        dict[Property, str | list[str]] | None,
        form_field(
            "Only events where",
            "A property a line, at most three, then the values of which an event must have any:"
            " plan pro, team. Numbers are whole, as 500; yes and no are true and false.",
            folded=True,
        ),
    ] = None
    rates: Annotated[
        dict[str, float] | None,
        form_field(
            "Rates of other currencies",
            "A currency a line, as JPY 0.0067: what a unit of it is worth in the metric’s currency."
            " Payments in others are left out, and counted by arm.",
            folded=True,
        ),
    ] = None

    def __post_init__(self) -> None:
        """Checks the rules of docs/statistics.md, 'Counts'."""
        window = self.window_seconds
        if window is not None and not (0 < window <= LONGEST_WINDOW and window % WINDOW_STEP == 0):
            raise ValueError(
                f"window_seconds is {window}: a whole multiple of 300, at most 28 days"
            )
        if self.window is not None:
            _require_later_window(self)
        grace = self.grace_seconds
        if grace is not None and not 0 <= grace <= LONGEST_GRACE:
            raise ValueError(f"grace_seconds is {grace}: between 0 and 604800 (7 days)")
        if self.sources is not None and not self.sources:
            raise ValueError("sources is empty: name an event")
        if self.cap is not None and not 0 < self.cap < math.inf:
            raise ValueError(f"cap is {self.cap}: a positive number")
        if isinstance(self.margin, float | int) and not 0 < self.margin < math.inf:
            raise ValueError(f"margin is {self.margin}: a positive number, 'default' or 'none'")
        if self.rates:
            _require_rates(self.rates, kind=self.kind, currency=self.currency)
        _require_values(self.values_of_properties)
        _require_valued_events(self)
        _require_counted_events(self)

    @property
    def later_window(self) -> tuple[int, int]:
        """From and to when a unit's events count, in seconds; without one 0, 0."""
        if self.window is None:
            return 0, 0
        ends = (self.window["from"], self.window["to"])
        since, until = (int(end[:-1]) * _UNITS[end[-1]] for end in ends)
        return since, until

    @property
    def values_of_properties(self) -> dict[str, list[str]]:
        """The values that it asks for, by property in the order of their names."""
        return {
            name: [values] if isinstance(values, str) else sorted(set(values))
            for name, values in sorted((self.where or {}).items())
        }

    @property
    def thresholds(self) -> list[str | float]:
        """The number, or quantiles of the history, that a unit's first value has to exceed."""
        named = re.split(r"[,\s]+", self.over) if isinstance(self.over, str) else self.over
        entries = [] if named is None else named if isinstance(named, list) else [named]
        read = [_threshold(entry) for entry in entries]
        if len(read) > (1 if any(isinstance(entry, float) for entry in read) else MOST_QUANTILES):
            raise ValueError(f"over names {len(read)}: a number, or at most four quantiles")
        return read


_LENGTH = re.compile(r"([1-9]\d{0,6})([mhd])")
_UNITS = {"m": MINUTE, "h": HOUR, "d": DAY}


def _require_later_window(metric: Metric) -> None:
    """Raises ValueError unless a window that starts later is a conversion's, with both ends."""
    window = metric.window or {}
    lengths = [_LENGTH.fullmatch(window.get(end, "")) for end in ("from", "to")]
    if not all(lengths):
        raise ValueError("window needs from and to: lengths of time as 30m, 12h or 7d")
    since, until = metric.later_window
    if not 0 < since < until <= LONGEST_WINDOW or since % WINDOW_STEP or until % WINDOW_STEP:
        raise ValueError("window: from before to, whole multiples of 5 minutes, at most 28 days")
    if metric.window_seconds is not None:
        raise ValueError("window and window_seconds say the same: name either")
    if metric.kind != "conversion" or metric.over is not None:
        raise ValueError("a window that starts later needs kind = 'conversion' without over")


def _require_values(asked: Mapping[str, Sequence[str]]) -> None:
    """Raises ValueError unless every engine can compare these values of properties."""
    if len(asked) > MOST_PROPERTIES:
        raise ValueError(f"where names {len(asked)} properties: at most {MOST_PROPERTIES}")
    for name, values in asked.items():
        if not 1 <= len(values) <= 50:
            raise ValueError(f"where names {len(values)} values of {name}: 1 to 50")
        for value in values:
            if not 1 <= len(value) <= 64 or not value.isprintable() or value[0] in "{[":
                raise ValueError(
                    f"where: {name} is {value!r}: 1 to 64 characters, no list or table"
                )
            if _NUMBER.fullmatch(value) and not _PLAIN_NUMBER.fullmatch(value):
                raise ValueError(f"where: {name} is {value}: a whole number of at most 15 digits")


def _require_valued_events(metric: Metric) -> None:
    """Raises ValueError where values of events are asked for that have none."""
    named = metric.sources or ()
    if metric.thresholds and (metric.kind != "conversion" or not REVENUE_EVENTS.isdisjoint(named)):
        raise ValueError("over needs kind = 'conversion', and events that carry a value")


def _require_counted_events(metric: Metric) -> None:
    """Raises ValueError unless a ratio, and no other metric, names its denominator."""
    if bool(metric.per) != (metric.kind == "ratio"):
        raise ValueError("kind = 'ratio' needs per, the events that it is taken over; others none")
    if metric.kind == "ratio" and (metric.cap is not None or metric.currency is not None):
        raise ValueError("a ratio counts each event as 1, so it takes no cap and no currency")


def _threshold(entry: str | float) -> str | float:
    if isinstance(entry, str) and (quantile := _QUANTILE.fullmatch(entry)) and float(quantile[1]):
        return entry
    try:
        number = float(entry)
    except ValueError:
        number = math.inf
    if not abs(number) <= LARGEST_VALUE:
        raise ValueError(f"over is {entry}: a number, or a quantile from p0.1 to p99.9")
    return number


def quantile_share(quantile: str) -> float:
    """Returns the share of values below a quantile, as it is written: 0.95 of `p95`."""
    return round(float(quantile[1:]) / 100, 6)


def _require_rates(rates: Mapping[str, float], *, kind: str, currency: str | None) -> None:
    """Raises ValueError unless rates turn known currencies into that of a mean."""
    if kind != "mean" or currency not in CODES:
        raise ValueError("rates need kind = 'mean', and the currency that they lead to")
    for code, rate in rates.items():
        if code not in CODES or code == currency:
            raise ValueError(f"rates names {code!r}: another currency of ISO 4217 than {currency}")
        conversion_factor(rate, of=code, to=currency)


class FrozenMetric(Document, frozen=True, kw_only=True):
    """A metric as the policy froze it."""

    cap: Annotated[
        float | None, Meta(description="Of a mean: the largest value that an event counts.")
    ]
    kind: Literal["conversion", "mean", "ratio"]
    name: str
    rates: Annotated[
        dict[str, float] | None,
        Meta(description="What a unit of another currency counts in the metric's own."),
    ] = None
    where: Annotated[
        dict[str, tuple[str, ...]] | None,
        Meta(description="The values that an event's properties may have, by property."),
    ] = None
    over: Annotated[
        float | None, Meta(description="What the value of a unit's first event has to exceed.")
    ] = None
    quantile: Annotated[
        str | None, Meta(description="Which quantile of the 28 days before the start that was.")
    ] = None
    value_unit: Annotated[
        Literal["ms"] | None, Meta(description="The unit of its values, where they are durations.")
    ] = None
    of: Annotated[
        str | None, Meta(description="The guardrail that has this threshold among several.")
    ] = None
    picked: Annotated[
        bool,
        Meta(
            description="Whether the same threshold is asked of an event of each unit that is"
            " picked by chance."
        ),
    ] = False
    better: Literal["higher", "lower"]
    margin: Annotated[
        float | Literal["default"] | None,
        Meta(
            description="Of a guardrail: how much worse still counts as unharmed, absolute; null"
            " where no keep waits for it."
        ),
    ]
    sources: Annotated[tuple[str, ...], Meta(description="The names of its events.")]
    per: Annotated[
        tuple[str, ...] | None, Meta(description="Of a ratio, the events that it is taken over.")
    ] = None
    currency: str | None
    vouched_only: Annotated[bool, Meta(description="Whether only vouched events count.")] = False
    trusted_only: Annotated[
        bool, Meta(description="Whether only the write key's events count, as of a server's spans.")
    ] = False
    grace_seconds: Annotated[
        int | None,
        Meta(
            description="How long its outcomes are waited for, where that is longer than the grace"
            " of all."
        ),
    ] = None
    window_seconds: Annotated[
        int, Meta(description="How long after its exposure a unit's events count.")
    ]
    after_seconds: Annotated[
        int, Meta(description="How long after its exposure they begin to count.")
    ] = 0

    @property
    def family(self) -> str:
        """The guardrail that it is a threshold of; its own name where it is a metric by itself."""
        return self.of or self.name

    @property
    def factors(self) -> dict[str, int]:
        """The `conversion_factor` of each other currency that it converts."""
        to = str(self.currency)
        rates = self.rates or {}
        return {code: conversion_factor(rate, of=code, to=to) for code, rate in rates.items()}

    def seconds_open(self, *, grace: int) -> int:
        """Returns for how long a block's outcomes stay open after its exposures have closed.

        A metric without a grace of its own has the policy's: they stay open for its window.
        """
        own = grace if self.grace_seconds is None else self.grace_seconds
        return self.window_seconds + own - grace


def picked_cells(family: str) -> list[str]:
    """Returns the names of the cells of a guardrail's picks, a name for each of `POSITIONS`."""
    return [f"{family}{PICKED} {position}" for position in POSITIONS]


class Companion(FrozenMetric, frozen=True, kw_only=True):
    """Another metric of the target's units, which a gate, a warning or the adjustment reads.

    Attributes:
        role: The cause whose gate reads it, or its part in the adjustment.
        before_seconds: How long before its exposure a unit's events count, too.
        received: From when to when its events were received, where they are the users' history.
        also_of: The metric whose values its own are added to.
    """

    role: str
    before_seconds: int = 0
    received: tuple[datetime, datetime] | None = None
    also_of: str | None = None


_EMPTY = " (empty)"


def empty_event(event: str) -> str:
    """Returns the name of the event by which history says that it does not know an outcome."""
    return f"{event[: LONGEST_NAME - len(_EMPTY)]}{_EMPTY}"


def so_far_seconds(window: int) -> int:
    """Returns the part of a slow metric's window, in whole days, after which it is read early."""
    return math.ceil(window / 4 / DAY) * DAY


# A companion counts units that have an event, whatever the target's values are.
_YES_OR_NO = {
    **dict.fromkeys(("cap", "over", "currency", "rates", "where", "per")),
    "kind": "conversion",
}


def companions_of(
    target: FrozenMetric,
    *,
    unit: str,
    every_event: bool,
    is_history: bool,
    history: tuple[datetime, datetime] | None,
    is_adjusted: bool,
) -> tuple[Companion, ...]:
    """Returns the companions of a target.

    Args:
        is_history: Whether events came by import or replay, which may not know an outcome.
        history: From when to when the history of the users was received; None where none is read.
        is_adjusted: Whether the target is adjusted by it.
    """
    window, is_mean = target.window_seconds, target.kind == "mean"
    # A unit's first value among more events is another value, and not a further outcome.
    is_first, vouched_only = target.over is not None, target.vouched_only
    is_plain = target.kind != "ratio" and not is_first and not target.after_seconds
    is_slow = window >= SLOW_WINDOW and is_plain and target.better == "higher"
    later, earlier = AFTER_WINDOWS * window, min(window, LONGEST_BEFORE)
    unknown = tuple(map(empty_event, target.sources))
    companions: Sequence[tuple[bool, str, str, Mapping[str, object]]] = [
        (True, "long_window", f" within {AFTER_WINDOWS} windows", {"window_seconds": later}),
        # With the write key, or signed: anybody can send others with the public key.
        (True, "vouched", " vouched for", {}),
        # With the public key, unsigned. Where servers report the same outcomes, these events tell
        # whether an arm's page loses more.
        (not is_first and not vouched_only, Cause.CHANNELS, " by the page", {}),
        # Outcomes that a mean leaves out, by their number.
        (is_mean, Cause.OTHER_CURRENCY, " in another currency", {"cap": None}),
        (is_mean, Cause.NO_VALUE, " without a value", {"cap": None}),
        (
            not is_first and vouched_only,
            Cause.NOT_VOUCHED,
            ": from every sender",
            {"vouched_only": False},
        ),
        (is_history, Cause.EMPTY, " empty", {**_YES_OR_NO, "sources": unknown}),
        # No event is its source: a session counts whose user began another within the window.
        (unit == "session", Cause.TURNOVER, ": another session", {**_YES_OR_NO, "sources": ()}),
        # The unit's own, from the experiment's start on, within `before_seconds` of its exposure.
        (
            not every_event and not is_first and not target.after_seconds,
            Cause.BEFORE_EXPOSURE,
            " also before the exposure",
            {"before_seconds": earlier},
        ),
        (is_slow, SO_FAR, " so far", {"window_seconds": so_far_seconds(window)}),
        (
            history is not None,
            HISTORY,
            BEFORE_CANARY,
            ({} if is_adjusted else _YES_OR_NO) | {"received": history},
        ),
        # Its sum of squares gives that of the products: a pair needs no sums of its own.
        (
            is_adjusted,
            WITH_HISTORY,
            " with the history",
            {"of": target.name, "also_of": f"{target.name}{BEFORE_CANARY}"},
        ),
    ]
    return tuple(
        msgspec.convert(
            structs.asdict(target) | changes | {"name": f"{target.name}{suffix}", "role": role},
            Companion,
        )
        for asked, role, suffix, changes in companions
        if asked
    )


# The guardrail on the duration of requests, where a server's spans come in.
SLOW = "slow"


def metric_definition(
    name: str, metrics: Mapping[str, Metric], *, grace: int | None = None
) -> FrozenMetric:
    """Returns the whole definition of a metric, without thresholds and caps of the past.

    Args:
        grace: The project's. A metric's own exceeds it, in seconds, by whole blocks, so that its
            outcomes close at their ends; None where graces do not matter.
    """
    chosen = metrics.get(name, Metric())
    longer_by = 0 if grace is None else (chosen.grace_seconds or 0) - grace
    after, until = chosen.later_window
    return FrozenMetric(
        name=name,
        sources=tuple(sorted(set(chosen.sources or [name]))),
        kind=chosen.kind,
        better=chosen.better or ("lower" if name in _LOWER_IS_BETTER else "higher"),
        after_seconds=after,
        window_seconds=until or chosen.window_seconds or _WINDOWS.get(name, 30 * MINUTE),
        cap=chosen.cap,
        margin=None if chosen.margin == "none" else chosen.margin,
        currency=chosen.currency,
        rates=dict(sorted(chosen.rates.items())) if chosen.rates else None,
        per=tuple(sorted(set(chosen.per))) if chosen.per else None,
        where={each: tuple(values) for each, values in chosen.values_of_properties.items()} or None,
        grace_seconds=None
        if grace is None or longer_by <= 0
        else grace + math.ceil(longer_by / WINDOW_STEP) * WINDOW_STEP,
    )
