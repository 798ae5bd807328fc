"""The freeze of a policy: the readings that an assignment asks for, and the policy they give.

It reads nothing itself, so a policy is frozen again from its kept answers, to the byte.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import structs
from sqlalchemy import Row

from domain.figures import counted
from domain.lineage.returning import ReturningVisitors
from domain.measure import precision_of
from domain.metric import (
    DAY,
    HOUR,
    MINUTE,
    SLOW,
    FrozenMetric,
    Metric,
    companions_of,
    metric_definition,
)
from domain.millionths import MILLION
from domain.policy import BLOCK_MIN_UNITS, UNDECLARED_MIN_UNITS, FrozenAnswer, Policy, RoutesBecause
from domain.registration import Registration
from domain.route import RouteTable
from storage.experiments.binding import Binding
from storage.experiments.deploy_record import StoredDeploy
from storage.experiments.readings import (
    FEWEST_UNITS,
    HISTORY_DAYS,
    HistorySums,
    Quantiles,
    Reading,
    affected_routes,
    cap_of,
    first_closing,
    first_flagged,
    first_values,
    history_of,
    read_returning,
    sends_requests,
)
from storage.tenants.settings import Settings, ValueRoute, frozen_settings

# docs/statistics.md, 'Threshold metrics': such shares of the units exceeded a threshold that is
# watched.
FEWEST_EXCEED, MOST_EXCEED = 0.002, 0.6
# How many units an analysis block waits for, and how long (docs/statistics.md, 'Counts').
_DECLARED = (BLOCK_MIN_UNITS, timedelta(hours=24))
_UNDECLARED = (UNDECLARED_MIN_UNITS, timedelta(hours=6))

# Members of a policy that are set by a setting of the same name, without a line of their own.
_AS_SET = {*Policy.__struct_fields__} & {*Settings.__struct_fields__} - {
    *("futility_margin", "guardrails", "segments", "unit")
}

Answers = Mapping[str, FrozenAnswer]
AnswerT = TypeVar("AnswerT")
# A part of the freeze: it yields its readings, takes the answer of each, and returns its result.
Asking: TypeAlias = Generator[Reading[Any], FrozenAnswer, AnswerT]


class LearnedPrior(NamedTuple):
    """The prior that a project's changes had taught on a day; empty before the first."""

    day: str | None = None
    weights: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """An experiment as it was bound: all that its policy is frozen from, besides the log.

    Attributes:
        patterns: The routes of its graph; None where they are not asked for.
        changes: The settings that were changed since its declaration, the first first.
        learned: The newest prior that was learned of its project's changes before its binding.
    """

    row: Row[Any]
    deploy: StoredDeploy
    request: Registration
    binding: Binding
    patterns: Sequence[str] | None
    changes: Sequence[Row[Any]]
    learned: LearnedPrior

    @property
    def until(self) -> datetime:
        """Up to when the log is read: its binding."""
        return self.row.bound_at

    @property
    def metric(self) -> str:
        """The target metric."""
        return self.row.target_metric

    @property
    def guardrails(self) -> Sequence[str]:
        """The guardrails that its registration asked for, or its project's."""
        return watched_guardrails(self.binding.settings, self.request.guardrails)


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A policy, or why the experiment cannot start, and when its exposure begins."""

    policy: Policy | str
    start: "Start"


def proceed(assignment: Assignment, answers: Answers) -> Reading[Any] | Frozen:
    """Returns the first reading of a freeze that is not answered; once all are, its result."""
    freezing, given = _freeze(assignment), list[FrozenAnswer]()
    try:
        reading = next(freezing)
        while (answer := answers.get(reading.question)) is not None:
            given.append(answer)
            reading = freezing.send(answer)
    except StopIteration as end:
        frozen: Frozen = end.value
        if isinstance(frozen.policy, str):
            return frozen
        policy = structs.replace(
            frozen.policy,
            read_from=tuple(each.read_from for each in given if each.read_from is not None),
            unread=tuple(each.question for each in given if each.is_default),
            frozen_from=tuple(given),
        )
        return replace(frozen, policy=policy)
    return reading


def _ask(
    question: str, kind: object, read: Callable[..., AnswerT], *, default: AnswerT, **asked: object
) -> Asking[AnswerT]:
    """Asks the past log, by a function of its events and of what is asked."""
    reading = Reading(question=question, read=partial(read, **asked), default=default, kind=kind)
    return reading.value((yield reading))


def _freeze(assignment: Assignment) -> Asking[Frozen]:
    """Freezes a policy, but for the answers that it was frozen from."""
    began_at = yield from _began_at(assignment)
    routes, because = yield from _routes(assignment)
    start = yield from _start(assignment, began_at)
    settings, guardrails = yield from _with_slow(assignment, start)
    unit = yield from _unit(settings, start)
    metrics = list[FrozenMetric]()
    for name in _watched(assignment, guardrails):
        metric = yield from _capped(_definition(settings, name), start)
        metrics.append(metric)
    unwatched, defined = list[str](), list[list[FrozenMetric]]()
    for metric in metrics:
        asked = _thresholds(settings, metric.name)
        history = yield from _first_values(metric, asked, unit, start)
        defined.append(with_thresholds(metric, asked, history, unwatched))
        if len(defined[0]) != 1:
            why = unwatched[-1] if unwatched else f"{metric.name}: {SINGLE}"
            return Frozen(policy=why, start=start)
    (definition,), *others = defined
    binding, request = assignment.binding, assignment.request
    # A unit's first value alone is the target's: more events are no further outcome.
    watched = [
        structs.replace(each, picked=each.over is not None) for own in others for each in own
    ]
    # A build with the change that was served then may have moved it.
    is_whole = start.starts_at - start.late_by == start.began_at
    has_history = unit != "session" and is_whole and not (start.is_history or binding.served_before)
    is_adjusted = has_history and (yield from _is_predicted(binding, definition, start))
    value = request.value_per_conversion
    if value is None:
        value = _shared_value(settings.value_routes, metric=assignment.metric, routes=routes)
    companions = companions_of(
        definition,
        unit=unit,
        every_event=routes is None and request.treatment_flag is None,
        is_history=start.is_history,
        history=(start.before - HISTORY_DAYS, start.before) if has_history else None,
        is_adjusted=is_adjusted,
    )
    smallest, *lifts = map(precision_of, sorted(settings.typical_lifts))
    *between, largest = lifts or [smallest]
    flag, late = request.treatment_flag, int(start.late_by.total_seconds())
    policy = Policy(
        target=definition,
        guardrails=tuple(watched),
        unwatched=tuple(unwatched),
        companions=companions,
        read_from=(),
        unread=(),
        frozen_from=(),
        environment=assignment.row.environment,
        routes=None if routes is None else tuple(routes),
        routes_because=because,
        graph_id=assignment.deploy.graph_id,
        flag=flag,
        unit=unit,
        drawn=flag is not None and flag.control is not None and settings.verified_draws,
        patience_seconds=settings.patience_hours * HOUR,
        attempt=binding.attempt,
        earlier_attempts=tuple(binding.earlier_attempts),
        rho_day=smallest,
        rho_fast=largest,
        rho_between=tuple(between),
        better=definition.better,
        window_seconds=definition.window_seconds,
        warmup_seconds=max(0, settings.warmup_minutes * MINUTE - late),
        segments=tuple(sorted(set(settings.segments))),
        horizon_seconds=settings.horizon_days * DAY,
        reward_seconds=settings.reward_days * DAY,
        contrast_seconds=settings.contrast_hours * HOUR,
        futility_margin=None if settings.futility_margin == "none" else settings.futility_margin,
        # The worth of a further event of each unit says nothing of a ratio.
        value_per_conversion=None if definition.per else value,
        portfolio=request.is_portfolio,
        retrospective=start.is_history,
        **{name: getattr(settings, name) for name in _AS_SET},
        learned_on=assignment.learned.day,
        learned_prior=tuple(assignment.learned.weights),
    )
    return Frozen(policy=policy, start=start)


# --- Metrics -------------------------------------------------------------------------------------


def _watched(assignment: Assignment, guardrails: Sequence[str]) -> list[str]:
    """Returns the target, and the guardrails beside it that its history has events of."""
    unseen = assignment.binding.unseen_guardrails
    names = [name for name in guardrails if name not in unseen]
    return list(dict.fromkeys([assignment.metric, *names]))


def watched_guardrails(settings: Settings, named: Sequence[str] | None) -> Sequence[str]:
    """Returns the guardrails of an experiment whose registration names some, or none at all.

    The project's always hold where its setting `locked` names guardrails: a registration adds.
    """
    if named is None:
        return settings.guardrails
    return [*settings.guardrails, *named] if "guardrails" in settings.locked else named


def asked_metrics(
    settings: Settings, target: str, named: Sequence[str] | None
) -> list[FrozenMetric]:
    """Returns the target and the guardrails that read no history, as settings define them."""
    names = dict.fromkeys([target, *watched_guardrails(settings, named)])
    by_past = [n for n in names if any(isinstance(x, str) for x in _thresholds(settings, n))]
    return [_definition(settings, n) for n in names if n == target or n not in by_past]


def _thresholds(settings: Settings, name: str) -> Sequence[str | float]:
    return settings.metrics.get(name, Metric()).thresholds


def _definition(settings: Settings, name: str) -> FrozenMetric:
    metric = metric_definition(name, settings.metrics, grace=settings.grace_seconds)
    if settings.signed_assignments:
        metric = structs.replace(metric, vouched_only=True)
    if _thresholds(settings, name) and metric.sources == (settings.span_event,):
        # Spans come by the write key alone.
        metric = structs.replace(metric, value_unit="ms", trusted_only=True)
    return metric


def _capped(metric: FrozenMetric, start: "Start") -> Asking[FrozenMetric]:
    if metric.kind != "mean" or metric.cap is not None:
        return metric
    question, asked = f"cap of {metric.name}", {"metric": metric, "before": start.before}
    cap = yield from _ask(question, int | None, cap_of, default=None, **asked)
    return metric if cap is None else structs.replace(metric, cap=cap / MILLION)


def _first_values(
    metric: FrozenMetric, thresholds: Sequence[str | float], unit: str, start: "Start"
) -> Asking[Quantiles | None]:
    shares = [each for each in thresholds if isinstance(each, str)]
    if not shares:
        return None
    question, by_user = f"thresholds of {metric.name}", unit != "session"
    asked = {"metric": metric, "quantiles": shares, "by_user": by_user, "before": start.before}
    return (yield from _ask(question, Quantiles | None, first_values, default=None, **asked))


def _is_predicted(binding: Binding, metric: FrozenMetric, start: "Start") -> Asking[bool]:
    """Tells whether the history of users predicts a mean of theirs."""
    if metric.kind != "mean" or metric.cap is None:
        return False
    question, trusted_only = f"history of {metric.name}", binding.settings.trusted_identity
    asked = {"metric": metric, "before": start.before, "trusted_only": trusted_only}
    sums = yield from _ask(question, HistorySums | None, history_of, default=None, **asked)
    return sums is not None and sums.predicts


def _with_slow(assignment: Assignment, start: "Start") -> Asking[tuple[Settings, Sequence[str]]]:
    """Returns settings and guardrails, with `slow` where none were chosen and requests come."""
    settings, guardrails = assignment.binding.settings, assignment.guardrails
    is_chosen = assignment.binding.chose_guardrails or SLOW in settings.metrics
    if is_chosen or not {*guardrails} >= {*settings.guardrails}:
        return settings, guardrails
    event, at = settings.span_event, start.starts_at
    if not (yield from _ask(SLOW, bool, sends_requests, default=False, event=event, at=at)):
        return settings, guardrails
    slow = Metric(
        sources=[event],
        over=["p50", "p90", "p95", "p99"],
        better="lower",
        # What comes after the window is not seen.
        window_seconds=30 * MINUTE,
    )
    metrics = {**settings.metrics, SLOW: slow}
    return structs.replace(settings, metrics=metrics), [*guardrails, SLOW]


SINGLE = "a target has a single threshold: name any of them in the metric's `over`"


def with_thresholds(
    metric: FrozenMetric,
    asked: Sequence[str | float],
    history: Quantiles | None,
    unwatched: list[str],
) -> list[FrozenMetric]:
    """Returns a metric once for each of its thresholds, with the number that each of them is."""
    shares = [each for each in asked if isinstance(each, str)]
    if not shares:
        return [structs.replace(metric, over=float(number)) for number in asked] or [metric]
    name = metric.name
    if history is None:
        unwatched.append(f"{name} is not watched: its past could not be read in time.")
        return []
    if history.units < FEWEST_UNITS:
        unwatched.append(
            f"{name} is not watched yet: {counted(history.units, 'unit')} had a value in the 28"
            f" days before, and its quantiles need {FEWEST_UNITS:,}."
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


# --- Unit and routes ------------------------------------------------------------------------------


def _unit(settings: Settings, start: "Start") -> Asking[str]:
    """Returns the unit that an experiment counts: the project's, or by `auto` the router's."""
    if settings.unit != "auto":
        return settings.unit
    # A token vouches for a session, and a sample takes whole sessions. Sessions of history are
    # units: an import counts them before any router can be read of it.
    if settings.signed_assignments or settings.sample_rate < 1 or start.is_history:
        return "session"
    kind, unknown = ReturningVisitors, ReturningVisitors()
    returning = yield from _ask("unit", kind, read_returning, default=unknown, settings=settings)
    return returning.unit or "session"


def _routes(assignment: Assignment) -> Asking[tuple[Sequence[str] | None, RoutesBecause]]:
    """Returns the routes that expose a unit, None for all, and why these.

    Where none are named they are the routes that the deploy affects and events have named of late.
    """
    if assignment.request.routes is not None:
        return assignment.request.routes, "named"
    if assignment.patterns is None:
        return None, "all"
    table, deploy = RouteTable(assignment.patterns), assignment.deploy
    since = min(deploy.deployed_at, assignment.until)
    asked = {"table": table, "affected": deploy.affected_routes, "since": since}
    routes = yield from _ask("routes", list[str] | None, affected_routes, default=None, **asked)
    return (routes, "affected") if routes else (None, "all")


# --- The start: when exposure begins, and whether the registration came after a look --------------


@dataclass(frozen=True, kw_only=True)
class Start:
    """When the exposure of an experiment begins.

    Attributes:
        began_at: When its declaration began.
        before: Up to when the past is read: to the declaration, and never beyond the binding.
        declared_at: The same as `began_at`, where exposure begins with a late registration alone.
        with_freeze: Whether it begins with the freeze itself, whenever that is.
    """

    starts_at: datetime
    began_at: datetime
    before: datetime
    declared_at: datetime | None
    is_history: bool
    with_freeze: bool

    @property
    def late_by(self) -> timedelta:
        """How long after its canary it starts, where it was registered late."""
        return timedelta() if self.declared_at is None else self.starts_at - self.declared_at


def _start(assignment: Assignment, began_at: datetime) -> Asking[Start]:
    """Returns when exposure begins: with the first step of the ramp, or of a flag's being on.

    It begins with the binding where the experiment is repeated, and where it was chosen late.
    History is registered after its events by its nature: it keeps its past.
    """
    binding, bound_at = assignment.binding, assignment.until
    starts_at, brought = began_at, binding.history_until
    is_late = _is_chosen_late(assignment, (yield from _first_closing(assignment, began_at)))
    if assignment.request.is_portfolio:
        # Users had the treatment long before: units of the old build that came then had it by
        # chance. The binding is meant where no share of the hold-back is declared yet.
        starts_at = max(began_at, binding.held_back_since or bound_at)
    if is_late or binding.is_repeated:
        starts_at = bound_at
    return Start(
        starts_at=starts_at,
        began_at=began_at,
        before=min(began_at if is_late else starts_at, bound_at),
        declared_at=began_at if is_late else None,
        is_history=brought is not None and brought >= starts_at,
        # Units got control until then, those too that are in treatment from there on.
        with_freeze=binding.is_handed_out and began_at >= bound_at,
    )


def _began_at(assignment: Assignment) -> Asking[datetime]:
    """Returns when the declaration began: with its first step; of a flag, when it was first on."""
    binding, flag = assignment.binding, assignment.request.treatment_flag
    if flag is None:
        return binding.began_at
    since = min(binding.began_at, assignment.until)
    asked = {"flag": flag, "since": since, "signed_only": binding.settings.signed_assignments}
    first = yield from _ask("start", datetime | None, first_flagged, default=None, **asked)
    return first or assignment.until


def _first_closing(assignment: Assignment, began_at: datetime) -> Asking[datetime | None]:
    """Returns when the first analysis block since the declaration closed.

    None where none has by the binding, or where the past counts whenever it is chosen.
    """
    deploy, brought = assignment.deploy, assignment.binding.history_until
    if assignment.request.is_portfolio or not (brought is None or brought < began_at):
        return None
    is_declared = deploy.allocation is not None and 0 < deploy.allocation < 1
    enough, longest = _DECLARED if is_declared else _UNDECLARED
    longest += timedelta(seconds=assignment.binding.settings.grace_seconds)
    # A registration that cannot be shown to precede a look counts as later than it.
    late = since = min(began_at, assignment.until)
    asked = {"since": since, "enough": enough, "longest": longest}
    return (yield from _ask("late start", datetime | None, first_closing, default=late, **asked))


def _is_chosen_late(assignment: Assignment, closed: datetime | None) -> bool:
    """Tells whether something that the verdict reads was chosen when it could be seen already.

    Args:
        closed: When the exposures of the first analysis block since the declaration closed.
    """
    if closed is None:
        return False
    before: dict[str, Any] = {}
    for change in assignment.changes:
        if change.happened_at > closed:
            before.setdefault(change.member, change.before)
    request, settings = assignment.request, assignment.binding.settings
    held = {*before.get("guardrails", settings.guardrails)}
    control = request.control_commit and assignment.row.control_commit
    named = assignment.row.registered_at > closed and (
        assignment.metric != before.get("default_metric", settings.default_metric)
        or request.routes is not None
        or control not in (None, assignment.deploy.base_commit)
        or not held <= {assignment.metric, *assignment.guardrails}
    )
    return named or _has_changed(before, assignment)


def _has_changed(before: Mapping[str, object], assignment: Assignment) -> bool:
    """Tells whether settings that the verdict reads are no longer as they were."""
    now = msgspec.to_builtins(assignment.binding.settings)
    if any(
        member in before and before[member] != now[member] for member in frozen_settings("whole")
    ):
        return True
    # A new guardrail takes nothing away.
    return any(
        member == f"metrics.{name}" or member.startswith(f"metrics.{name}.")
        for member, value in before.items()
        for name in (assignment.metric, *assignment.guardrails)
        if name == assignment.metric or value is not None
    )
