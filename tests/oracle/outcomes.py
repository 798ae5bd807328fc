"""Outcomes: what became of an experiment's units, in each metric that its policy freezes."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from domain.currency import RATE_SCALE, conversion_factor
from domain.millionths import LARGEST_AMOUNT, MILLION, cap_in_millionths
from storage.pipeline.moments import microseconds
from tests.oracle.calendar import SECOND
from tests.oracle.raw_log import RawEvent, RawRevenue

# A ratio's unit has as its amount so many times the events that count, and those that it is over.
PAIR = 2**31


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a policy freezes of a metric; spans in microseconds, the cap in millionths."""

    name: str
    sources: frozenset[str]
    window: int
    after: int
    before: int
    open_for: int
    is_mean: bool
    per: frozenset[str]
    cap: int | None
    over: int | None
    kept_as: str
    currency: str | None
    factors: Mapping[str, int]
    vouched_only: bool
    trusted_only: bool
    by_page: bool
    left_out: str | None
    is_turnover: bool
    received: tuple[int, ...]
    also_of: str | None
    where: Mapping[str, list[str]]

    @classmethod
    def of(cls, definition: Mapping[str, Any], grace: int) -> "Metric":
        cap, role = definition["cap"], definition.get("role")
        window, own_grace = definition["window_seconds"], definition.get("grace_seconds", grace)
        return cls(
            name=definition["name"],
            sources=frozenset(definition["sources"]),
            window=window * SECOND,
            after=definition.get("after_seconds", 0) * SECOND,
            before=definition.get("before_seconds", 0) * SECOND,
            open_for=(window + own_grace - grace) * SECOND,
            is_mean=definition["kind"] == "mean",
            per=frozenset(definition.get("per", ())),
            cap=None if cap is None else cap_in_millionths(cap),
            over=None if (over := definition.get("over")) is None else cap_in_millionths(over),
            kept_as=definition.get("of", definition["name"]),
            currency=definition["currency"],
            vouched_only=role == "vouched" or definition.get("vouched_only", False),
            trusted_only=definition.get("trusted_only", False),
            by_page=role == "channels",
            factors={
                code: conversion_factor(rate, of=code, to=definition["currency"])
                for code, rate in definition.get("rates", {}).items()
            },
            left_out=role if role in ("other_currency", "no_value") else None,
            is_turnover=role == "turnover",
            received=tuple(
                microseconds(datetime.fromisoformat(at)) for at in definition.get("received", ())
            ),
            also_of=definition.get("also_of"),
            where=definition.get("where", {}),
        )

    def holds(self, occurred_at: int, *, exposed_at: int, start: int) -> bool:
        """Tells whether a unit's own event counts by its time, before the exposure or after it."""
        since = occurred_at - exposed_at
        if self.received:
            return False
        if since < 0:
            return -self.before <= since and occurred_at >= start
        return self.after <= since <= self.window

    def counts(self, paid: RawRevenue) -> bool:
        """Tells whether a revenue event is the metric's; of a mean, in its currency."""
        if self.by_page or self.over is not None:
            return False
        named = self.pair(paid.event, paid.attributes) > 0
        if not named or not self.is_mean:
            return named
        if paid.amount is None:
            return self.left_out == "no_value"
        abroad = paid.currency != self.currency and paid.currency not in self.factors
        abroad = abroad or self.currency is None
        return self.left_out == ("other_currency" if abroad else None)

    def worth(self, paid: RawRevenue) -> int | None:
        """What a payment is worth in the metric's currency, in millionths of its minor unit."""
        if self.per:
            return self.pair(paid.event, paid.attributes)
        if paid.amount is None:
            return None
        value = min(paid.amount, LARGEST_AMOUNT) * MILLION
        if not self.is_mean or paid.currency not in self.factors:
            return value
        factor = self.factors[paid.currency]
        # What it comes to has 64 bits.
        largest = (2**63 - 1) * RATE_SCALE // factor
        converted = min(abs(value), largest) * factor // RATE_SCALE
        return converted if value > 0 else -converted

    def asks(self, properties: Mapping[str, object] | None) -> bool:
        """Tells whether the properties have the values that the metric asks for."""
        return all(
            (value := (properties or {}).get(name)) is not None
            and (value if isinstance(value, str) else json.dumps(value)) in values
            for name, values in self.where.items()
        )

    def pair(self, name: str, properties: Mapping[str, object] | None) -> int:
        """The amount of an event: PAIR where it counts, and 1 in the denominator of a ratio."""
        return PAIR * (name in self.sources and self.asks(properties)) + (name in self.per)

    def reads(self, event: RawEvent) -> bool:
        if not self.pair(event.event, event.properties):
            return False
        if self.vouched_only and not (event.trusted or event.signed):
            return False
        if self.trusted_only and not event.trusted:
            return False
        if self.by_page and (event.trusted or event.signed):
            return False
        if self.over is not None:
            return event.value is not None
        return self.left_out is None or (self.left_out == "no_value" and event.value is None)


def metrics_of(policy: Mapping[str, Any]) -> list[Metric]:
    """Returns the target, then each guardrail and each companion of the target."""
    grace = policy["grace_seconds"]
    definitions = [policy["target"], *policy["guardrails"], *policy["companions"]]
    return [Metric.of(definition, grace) for definition in definitions]


# Of a unit, what each delivery of an event says: by the event's key, (received, millionths).
Values = dict[Any, tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What became of the units, in a metric: the earliest receipt, and the values of means."""

    metric: Metric
    received: dict[str, int] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=lambda: defaultdict(dict))

    @property
    def is_kept(self) -> bool:
        """Whether the store keeps the values under this metric's name."""
        return self.metric.kept_as == self.metric.name

    def note(self, unit: str, received: int, key: object, value: int | None) -> None:
        """Counts a delivery: the first of an event speaks for it."""
        if self.metric.over is not None:
            self._note_first(unit, received, key, value)
            return
        # The events under a ratio's line (`per`) convert no unit.
        # The history that a mean is adjusted by, with the value or alone, converts none either.
        is_converted = not self.metric.per or (value or 0) >= PAIR
        is_adjusting = bool(self.metric.received) and self.metric.is_mean
        if is_converted and not is_adjusting and self.metric.also_of is None:
            self.received[unit] = min(received, self.received.get(unit, received))
        if self.metric.left_out is not None:
            value = MILLION
        if (self.metric.is_mean or self.metric.per) and value is not None:
            cap = self.metric.cap
            capped = value if cap is None else max(min(value, cap), -cap)
            own = self.values[unit]
            own[key] = min((received, capped), own.get(key, (received, capped)))

    def _note_first(self, unit: str, received: int, occurred: Any, value: Any) -> None:
        """Keeps an event that no event received before it, or with it, precedes."""
        own = self.values[unit]
        own[occurred] = min((received, value), own.get(occurred, (received, value)))
        for at in list(own):
            if any(other < at and own[other][0] <= own[at][0] for other in own):
                del own[at]

    def note_late(self, unit: str, closes: int) -> None:
        """Notes an event that would have counted, had it come by the close."""
        over, own = self.metric.over or 0, self.values[unit].values()
        late = [received for received, value in own if received > closes and value > over]
        if late and self.is_kept:
            self.received[unit] = min(late)

    def exceeds(self, unit: str, closes: int) -> bool:
        """Tells whether the first event that was received by the close exceeds the threshold."""
        over, own = self.metric.over, self.values.get(unit, {})
        in_time = {at: value for at, (received, value) in own.items() if received <= closes}
        return over is not None and bool(in_time) and in_time[min(in_time)] > over
