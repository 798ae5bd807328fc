"""The policy: everything that a verdict reads except events and deploys, frozen at the binding."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from domain.evidence.policy import EFFECT_PRIOR, FrozenSource
from domain.lineage.flag import Flag
from domain.measure import precision_of
from domain.metric import (
    DAY,
    HOUR,
    MINUTE,
    Metric,
    companions_of,
    metric_definition,
    seconds_open,
    with_own_grace,
)
from domain.registration import PORTFOLIO, RETROSPECTIVE
from storage.postgres.refusal import Conflict
from storage.tenants.settings import Settings, Unit, ValueRoute

BLOCK_SECONDS = 300
BLOCK_MIN_UNITS = 50
UNDECLARED_MIN_UNITS = 20
# The evidence of dependence from which on another flag splits the strata (docs/statistics.md,
# 'Many flags in a build').
SPLIT_AT = 2.0
# As the gates on interaction and lateness.
FADING_AT = AFTER_WINDOW_AT = 100.0
# docs/statistics.md, 'Threshold metrics': quantiles need so many units with a value, and such
# shares of them exceeded a threshold that is watched.
FEWEST_UNITS = 1000
FEWEST_EXCEED, MOST_EXCEED = 0.002, 0.6
# A policy names the newest of the attempts before it.
_NAMED_ATTEMPTS = 20


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """The first values of units before the start.

    Attributes:
        exceeding: The share of units that exceeded each of these values.
    """

    units: int
    values: Sequence[float]
    exceeding: Sequence[float]


def watched_guardrails(settings: Settings, named: Sequence[str] | None) -> Sequence[str]:
    """Returns the guardrails of an experiment whose registration names some, or none at all.

    The project's always hold where its setting `locked` names guardrails: a registration adds.
    """
    if named is None:
        return settings.guardrails
    return [*settings.guardrails, *named] if "guardrails" in settings.locked else named


def frozen_policy(
    settings: Settings,
    *,
    unit: Unit,
    target: str,
    guardrails: Iterable[str],
    environment: str,
    routes: Sequence[str] | None,
    routes_because: str,
    graph_id: str | None,
    value_per_conversion: float | None,
    earlier_attempts: Sequence[str],
    flag: Flag | None,
    is_portfolio: bool,
    late_by: timedelta,
    retrospective: bool,
    caps: Callable[[Mapping[str, Any]], float | None],
    quantiles: Callable[[Mapping[str, Any]], Quantiles | None],
    history: Callable[[Mapping[str, Any]], Sequence[str] | None],
    read_from: Sequence[FrozenSource],
    unread: Sequence[str],
) -> dict[str, Any]:
    """Returns the policy of an experiment that binds now.

    Args:
        unit: Its unit, or by `auto` the router's.
        guardrails: Names of the guardrail metrics; the target is never its own guardrail.
        routes: Patterns that expose a unit; None for all.
        routes_because: `named`, `affected`, or `all`: how the routes were chosen.
        earlier_attempts: Experiments that this experiment tries again, the oldest first.
        unread: Receives the members that could not be read in time, and have their default.

    Raises:
        Conflict: The target's threshold cannot be frozen.
    """
    unwatched: list[str] = []

    def defined(name: str) -> list[dict[str, Any]]:
        definition = metric_definition(name, settings.metrics)
        if settings.signed_assignments:
            definition["vouched_only"] = True
        if definition["kind"] == "mean" and definition["cap"] is None:
            definition["cap"] = caps(definition)
        metric = settings.metrics.get(name, Metric())
        if "over" in definition and definition["sources"] == [settings.span_event]:
            # Spans come by the write key alone.
            definition |= {"value_unit": "ms", "trusted_only": True}
        with_own_grace(definition, metric, grace=settings.grace_seconds)
        return with_thresholds(definition, quantiles, unwatched)

    definition, *others = defined(target) or [None]
    if definition is None or others:
        raise Conflict("no_threshold", unwatched[-1] if unwatched else f"{target}: {_SINGLE}")
    watched = [
        each for name in dict.fromkeys(guardrails) if name != target for each in defined(name)
    ]
    is_adjusted = unit == "user" and definition["kind"] == "mean" and not retrospective
    companions = companions_of(
        definition,
        unit=unit,
        every_event=routes is None and flag is None,
        is_history=retrospective,
        adjusted_by=history(definition) if is_adjusted else None,
    )
    return {
        "target": definition,
        "guardrails": watched,
        **({"unwatched": unwatched} if unwatched else {}),
        "companions": companions,
        "read_from": msgspec.to_builtins(read_from),
        **({"unread": list(unread)} if unread else {}),
        "environment": environment,
        "routes": None if routes is None else list(routes),
        "routes_because": routes_because,
        "graph_id": graph_id,
        "flag": None if flag is None else asdict(flag),
        "unit": unit,
        "sample_rate": settings.sample_rate,
        "drawn": flag is not None and flag.control is not None and settings.verified_draws,
        "trusted_identity": settings.trusted_identity,
        "signed_assignments": settings.signed_assignments,
        "alpha": settings.alpha,
        "attempt": 1 + len(earlier_attempts),
        "earlier_attempts": list(earlier_attempts[-_NAMED_ATTEMPTS:]),
        **_precisions(settings.typical_lifts),
        "better": definition["better"],
        "window_seconds": definition["window_seconds"],
        "grace_seconds": settings.grace_seconds,
        "warmup_seconds": max(0, settings.warmup_minutes * MINUTE - int(late_by.total_seconds())),
        "block_seconds": BLOCK_SECONDS,
        "block_min_units": BLOCK_MIN_UNITS,
        "undeclared_min_units": UNDECLARED_MIN_UNITS,
        "split_at": SPLIT_AT,
        "segments": sorted(set(settings.segments)),
        "fading_at": FADING_AT,
        "after_window_at": AFTER_WINDOW_AT,
        "horizon_seconds": settings.horizon_days * DAY,
        "reward_seconds": settings.reward_days * DAY,
        "effect_prior": EFFECT_PRIOR,
        "contrast_seconds": settings.contrast_hours * HOUR,
        "futility_margin": None if settings.futility_margin == "none" else settings.futility_margin,
        "value_per_conversion": value_per_conversion
        if value_per_conversion is not None
        else _shared_value(settings.value_routes, metric=target, routes=routes),
        # The worth of a further event of each unit says nothing of a ratio.
        **({"value_per_conversion": None} if "per" in definition else {}),
        PORTFOLIO: is_portfolio,
        RETROSPECTIVE: retrospective,
    }


_SINGLE = "a target has a single threshold: name any of them in the metric's `over`"


def with_thresholds(
    definition: dict[str, Any],
    quantiles: Callable[[Mapping[str, Any]], Quantiles | None],
    unwatched: list[str],
) -> list[dict[str, Any]]:
    """Returns a metric once for each of its thresholds, with the number that each of them is."""
    if not (asked := definition.pop("over", [])):
        return [definition]
    if isinstance(asked[0], float):
        return [{**definition, "over": asked[0]}]
    history, name = quantiles({**definition, "over": asked}), definition["name"]
    if history is None:
        unwatched.append(f"{name} is not watched: its past could not be read in time.")
        return []
    if history.units < FEWEST_UNITS:
        unwatched.append(
            f"{name} is not watched yet: {history.units:,} units had a value in the 28 days before,"
            f" and its quantiles need {FEWEST_UNITS:,}."
        )
        return []
    frozen: list[dict[str, Any]] = []
    for quantile, value, exceeded in zip(asked, history.values, history.exceeding, strict=True):
        if not FEWEST_EXCEED <= exceeded <= MOST_EXCEED:
            unwatched.append(
                f"{name} {quantile} is not watched: {100 * exceeded:.2g} % exceeded {value:g} in"
                f" the 28 days before, not {100 * FEWEST_EXCEED:g} to {100 * MOST_EXCEED:g} %."
            )
        elif value in (each["over"] for each in frozen):
            unwatched.append(f"{name} {quantile} is not watched: it is {value:g}, as another is.")
        else:
            # The first keeps the name, under which all of them have their values.
            own = f"{name} {quantile}" if frozen else name
            several = {"of": name} if len(asked) > 1 else {}
            named = {"name": own, "over": value, "quantile": quantile}
            frozen.append({**definition, **named, **several})
    return frozen


def _precisions(typical_lifts: Sequence[float]) -> dict[str, Any]:
    """Returns the precisions of the test's components, of the smallest lift and of the largest."""
    smallest, *others = map(precision_of, sorted(typical_lifts))
    *between, largest = others or [smallest]
    return {
        "rho_day": smallest,
        "rho_fast": largest,
        "rho_between": between,
    }


def _shared_value(
    value_routes: Sequence[ValueRoute], *, metric: str, routes: Sequence[str] | None
) -> float | None:
    """Returns the value that all the experiment's routes share, else that of every route."""
    values: Mapping[str, float] = {
        entry.route: entry.value_per_conversion
        for entry in value_routes
        if entry.metric == metric and entry.counts
    }
    shared = {values.get(route) for route in routes or ()}
    if len(shared) == 1 and None not in shared:
        return shared.pop()
    return values.get("*")


def first_look_at(starts_at: datetime, policy: Mapping[str, Any]) -> datetime:
    """Returns when the first block of the target closes: no look at it can come before."""
    begins_at = int(starts_at.timestamp()) // BLOCK_SECONDS * BLOCK_SECONDS
    return datetime.fromtimestamp(begins_at + BLOCK_SECONDS, tz=UTC) + closes_after(policy)


def reward_at(starts_at: datetime, policy: Mapping[str, Any]) -> datetime:
    """Returns when the effect is final, unless the deciding look comes later."""
    return starts_at + timedelta(seconds=policy["reward_seconds"])


def closes_after(policy: Mapping[str, Any]) -> timedelta:
    """Returns how long after its end a block of the target closes: window and grace."""
    grace = policy["grace_seconds"]
    return timedelta(seconds=seconds_open(policy["target"], grace=grace) + grace)
