"""The freeze of a policy: from settings, a registration, and readings of the past."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import structs

from domain.lineage.flag import Flag
from domain.measure import precision_of
from domain.metric import DAY, HOUR, MINUTE, FrozenMetric, Metric, companions_of, metric_definition
from domain.millionths import MILLION
from domain.policy import FrozenAnswer, Policy, RoutesBecause
from storage.postgres.refusal import Conflict
from storage.tenants.settings import Settings, Unit, ValueRoute

# docs/statistics.md, 'Threshold metrics': quantiles need so many units with a value, and such
# shares of them exceeded a threshold that is watched.
FEWEST_UNITS = 1000
FEWEST_EXCEED, MOST_EXCEED = 0.002, 0.6


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """The first values of units before the start.

    Attributes:
        values: In millionths, a quantile each.
        exceeding: How many units exceeded each of them.
    """

    units: int
    values: Sequence[int]
    exceeding: Sequence[int]


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
    routes_because: RoutesBecause,
    graph_id: str | None,
    value_per_conversion: float | None,
    attempt: int,
    earlier_attempts: Sequence[str],
    flag: Flag | None,
    is_portfolio: bool,
    late_by: timedelta,
    retrospective: bool,
    caps: Callable[[FrozenMetric], int | None],
    quantiles: Callable[[FrozenMetric, Sequence[str]], Quantiles | None],
    history: Callable[[FrozenMetric], tuple[datetime, datetime] | None],
    answers: Sequence[FrozenAnswer],
) -> Policy:
    """Returns the policy of an experiment, from settings, a registration, and readings.

    Args:
        unit: Its unit, or by `auto` the router's.
        guardrails: Names of the guardrail metrics; the target is never its own guardrail.
        routes: Patterns that expose a unit; None for all.
        routes_because: `named`, `affected`, or `all`: how the routes were chosen.
        earlier_attempts: The newest experiments that it tries again, the oldest first.
        answers: Receives those of the readings that it asks for.

    Raises:
        Conflict: The target's threshold cannot be frozen.
    """
    unwatched: list[str] = []

    def defined(name: str) -> list[FrozenMetric]:
        metric = metric_definition(name, settings.metrics, grace=settings.grace_seconds)
        if settings.signed_assignments:
            metric = structs.replace(metric, vouched_only=True)
        if metric.kind == "mean" and metric.cap is None:
            cap = caps(metric)
            metric = structs.replace(metric, cap=None if cap is None else cap / MILLION)
        asked = settings.metrics.get(name, Metric()).thresholds
        if asked and metric.sources == (settings.span_event,):
            # Spans come by the write key alone.
            metric = structs.replace(metric, value_unit="ms", trusted_only=True)
        return with_thresholds(metric, asked, quantiles, unwatched)

    definition, *others = defined(target) or [None]
    if definition is None or others:
        raise Conflict("no_threshold", unwatched[-1] if unwatched else f"{target}: {SINGLE}")
    watched = [
        each for name in dict.fromkeys(guardrails) if name != target for each in defined(name)
    ]
    is_adjusted = unit == "user" and definition.kind == "mean" and not retrospective
    companions = companions_of(
        definition,
        unit=unit,
        every_event=routes is None and flag is None,
        is_history=retrospective,
        adjusted_by=history(definition) if is_adjusted else None,
    )
    smallest, *lifts = map(precision_of, sorted(settings.typical_lifts))
    *between, largest = lifts or [smallest]
    return Policy(
        target=definition,
        guardrails=tuple(watched),
        unwatched=tuple(unwatched),
        companions=companions,
        read_from=tuple(each.read_from for each in answers if each.read_from is not None),
        unread=tuple(each.question for each in answers if each.is_default),
        frozen_from=tuple(answers),
        environment=environment,
        routes=None if routes is None else tuple(routes),
        routes_because=routes_because,
        graph_id=graph_id,
        flag=flag,
        unit=unit,
        sample_rate=settings.sample_rate,
        drawn=flag is not None and flag.control is not None and settings.verified_draws,
        trusted_identity=settings.trusted_identity,
        signed_assignments=settings.signed_assignments,
        on_suspicion=settings.on_suspicion,
        alpha=settings.alpha,
        attempt=attempt,
        earlier_attempts=tuple(earlier_attempts),
        rho_day=smallest,
        rho_fast=largest,
        rho_between=tuple(between),
        better=definition.better,
        window_seconds=definition.window_seconds,
        grace_seconds=settings.grace_seconds,
        warmup_seconds=max(0, settings.warmup_minutes * MINUTE - int(late_by.total_seconds())),
        segments=tuple(sorted(set(settings.segments))),
        horizon_seconds=settings.horizon_days * DAY,
        reward_seconds=settings.reward_days * DAY,
        contrast_seconds=settings.contrast_hours * HOUR,
        futility_margin=None if settings.futility_margin == "none" else settings.futility_margin,
        # The worth of a further event of each unit says nothing of a ratio.
        value_per_conversion=None
        if definition.per
        else _shared_value(settings.value_routes, metric=target, routes=routes)
        if value_per_conversion is None
        else value_per_conversion,
        portfolio=is_portfolio,
        retrospective=retrospective,
    )


SINGLE = "a target has a single threshold: name any of them in the metric's `over`"


def with_thresholds(
    metric: FrozenMetric,
    asked: Sequence[str | float],
    quantiles: Callable[[FrozenMetric, Sequence[str]], Quantiles | None],
    unwatched: list[str],
) -> list[FrozenMetric]:
    """Returns a metric once for each of its thresholds, with the number that each of them is."""
    shares = [each for each in asked if isinstance(each, str)]
    if not shares:
        return [structs.replace(metric, over=float(number)) for number in asked] or [metric]
    history, name = quantiles(metric, shares), metric.name
    if history is None:
        unwatched.append(f"{name} is not watched: its past could not be read in time.")
        return []
    if history.units < FEWEST_UNITS:
        unwatched.append(
            f"{name} is not watched yet: {history.units:,} units had a value in the 28 days before,"
            f" and its quantiles need {FEWEST_UNITS:,}."
        )
        return []
    frozen: list[FrozenMetric] = []
    read = zip(shares, history.values, history.exceeding, strict=True)
    for quantile, value, exceeded in (
        (quantile, value / MILLION, count / history.units) for quantile, value, count in read
    ):
        if not FEWEST_EXCEED <= exceeded <= MOST_EXCEED:
            unwatched.append(
                f"{name} {quantile} is not watched: {100 * exceeded:.2g} % exceeded {value:g} in"
                f" the 28 days before, not {100 * FEWEST_EXCEED:g} to {100 * MOST_EXCEED:g} %."
            )
        elif value in (each.over for each in frozen):
            unwatched.append(f"{name} {quantile} is not watched: it is {value:g}, as another is.")
        else:
            # The first keeps the name, under which all of them have their values.
            own = f"{name} {quantile}" if frozen else name
            several = name if len(shares) > 1 else None
            frozen.append(
                structs.replace(metric, name=own, over=value, quantile=quantile, of=several)
            )
    return frozen


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
