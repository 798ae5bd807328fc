"""The freeze of a policy: which readings an assignment asks for, and the policy of their answers.

Both are pure, so a policy is frozen again from its kept answers, to the byte.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import structs
from sqlalchemy import Row

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
        frozen_at: When it was frozen, or now.
    """

    row: Row[Any]
    deploy: StoredDeploy
    request: Registration
    binding: Binding
    patterns: Sequence[str] | None
    changes: Sequence[Row[Any]]
    learned: LearnedPrior
    frozen_at: datetime

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


def next_question(assignment: Assignment, answers: Answers) -> Reading[Any] | None:
    """Returns the first reading that a policy needs and that is not answered; None once all are."""
    asked = questions(assignment, answers)
    return next((each for each in asked if each.question not in answers), None)


def questions(assignment: Assignment, answers: Answers) -> list[Reading[Any]]:
    """Returns the readings that a policy needs, as far as the answers so far tell which.

    Once all of them are answered, `freeze` can give the policy.
    """
    asked: list[Reading[Any]] = []
    for stage in (_of_declaration, _of_lateness, _of_members, _of_shapes):
        asked += filter(None, stage(assignment, answers))
        if not {each.question for each in asked} <= answers.keys():
            break
    return asked


def _of_declaration(assignment: Assignment, _: Answers) -> Sequence[Reading[Any] | None]:
    return [_flagged(assignment), _routes_seen(assignment)]


def _of_lateness(assignment: Assignment, answers: Answers) -> Sequence[Reading[Any] | None]:
    return [_closing(assignment, answers)]


def _of_members(assignment: Assignment, answers: Answers) -> Sequence[Reading[Any] | None]:
    start, settings = start_of(assignment, answers), assignment.binding.settings
    names = _watched(assignment, assignment.guardrails)
    return [
        _requests(assignment, start),
        _returning(assignment, start),
        *(_cap(assignment, _definition(settings, name), start) for name in names),
    ]


def _of_shapes(assignment: Assignment, answers: Answers) -> Sequence[Reading[Any] | None]:
    start = start_of(assignment, answers)
    settings, guardrails = _with_slow(assignment, answers, start)
    unit = _unit(assignment, answers, start)
    metrics = {
        name: _capped(assignment, answers, start, settings, name)
        for name in _watched(assignment, guardrails)
    }
    return [
        *(_first_values(assignment, settings, each, unit, start) for each in metrics.values()),
        _past(assignment, metrics[assignment.metric], unit, start),
    ]


def freeze(assignment: Assignment, answers: Answers) -> Policy | str:
    """Returns the policy that answers to its questions give, or why it cannot start."""
    start = start_of(assignment, answers)
    settings, guardrails = _with_slow(assignment, answers, start)
    unit = _unit(assignment, answers, start)
    unwatched: list[str] = []

    def defined(name: str) -> list[FrozenMetric]:
        metric = _capped(assignment, answers, start, settings, name)
        values = _first_values(assignment, settings, metric, unit, start)
        asked = settings.metrics.get(name, Metric()).thresholds
        history = None if values is None else values.value(answers)
        return with_thresholds(metric, asked, history, unwatched)

    target, *others = _watched(assignment, guardrails)
    definition, *further = defined(target) or [None]
    if definition is None or further:
        return unwatched[-1] if unwatched else f"{target}: {SINGLE}"
    binding, request = assignment.binding, assignment.request
    # A unit's first value alone is the target's: more events are no further outcome.
    watched = [
        structs.replace(each, picked=each.over is not None)
        for name in others
        for each in defined(name)
    ]
    routes, because = _routes(assignment, answers)
    past = _past(assignment, definition, unit, start)
    sums = None if past is None else past.value(answers)
    before = _before(assignment, start)
    value = request.value_per_conversion
    if value is None:
        value = _shared_value(settings.value_routes, metric=target, routes=routes)
    companions = companions_of(
        definition,
        unit=unit,
        every_event=routes is None and request.treatment_flag is None,
        is_history=start.is_history,
        adjusted_by=(before - HISTORY_DAYS, before) if sums is not None and sums.predicts else None,
    )
    smallest, *lifts = map(precision_of, sorted(settings.typical_lifts))
    *between, largest = lifts or [smallest]
    given = [answers[each.question] for each in questions(assignment, answers)]
    flag, late = request.treatment_flag, int(start.late_by.total_seconds())
    return Policy(
        target=definition,
        guardrails=tuple(watched),
        unwatched=tuple(unwatched),
        companions=companions,
        read_from=tuple(each.read_from for each in given if each.read_from is not None),
        unread=tuple(each.question for each in given if each.is_default),
        frozen_from=tuple(given),
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


def _definition(settings: Settings, name: str) -> FrozenMetric:
    metric = metric_definition(name, settings.metrics, grace=settings.grace_seconds)
    if settings.signed_assignments:
        metric = structs.replace(metric, vouched_only=True)
    if settings.metrics.get(name, Metric()).thresholds and metric.sources == (settings.span_event,):
        # Spans come by the write key alone.
        metric = structs.replace(metric, value_unit="ms", trusted_only=True)
    return metric


def _cap(
    assignment: Assignment, metric: FrozenMetric, start: "Start"
) -> Reading[int | None] | None:
    if metric.kind != "mean" or metric.cap is not None:
        return None
    before = _before(assignment, start)
    return Reading(
        question=f"cap of {metric.name}",
        read=partial(cap_of, metric=metric, before=before),
        default=None,
        kind=int | None,
    )


def _capped(
    assignment: Assignment, answers: Answers, start: "Start", settings: Settings, name: str
) -> FrozenMetric:
    metric = _definition(settings, name)
    cap = None if (reading := _cap(assignment, metric, start)) is None else reading.value(answers)
    return metric if cap is None else structs.replace(metric, cap=cap / MILLION)


def _first_values(
    assignment: Assignment, settings: Settings, metric: FrozenMetric, unit: str, start: "Start"
) -> Reading[Quantiles | None] | None:
    asked = settings.metrics.get(metric.name, Metric()).thresholds
    shares = [each for each in asked if isinstance(each, str)]
    if not shares:
        return None
    before = _before(assignment, start)
    read = partial(
        first_values, metric=metric, quantiles=shares, by_user=unit != "session", before=before
    )
    return Reading(
        question=f"thresholds of {metric.name}", read=read, default=None, kind=Quantiles | None
    )


def _past(
    assignment: Assignment, metric: FrozenMetric, unit: str, start: "Start"
) -> Reading[HistorySums | None] | None:
    """Returns the reading of the history that predicts a metric of users.

    None where a build with the change was served then.
    """
    binding = assignment.binding
    is_adjusted = unit != "session" and metric.kind == "mean" and not start.is_history
    is_whole = start.starts_at - start.late_by == start.began_at
    if not is_adjusted or binding.served_before or metric.cap is None or not is_whole:
        return None
    before, trusted_only = _before(assignment, start), binding.settings.trusted_identity
    return Reading(
        question=f"history of {metric.name}",
        read=partial(history_of, metric=metric, before=before, trusted_only=trusted_only),
        default=None,
        kind=HistorySums | None,
    )


def _requests(assignment: Assignment, start: "Start") -> Reading[bool] | None:
    binding = assignment.binding
    settings = binding.settings
    if (
        binding.chose_guardrails
        or SLOW in settings.metrics
        or not {*assignment.guardrails} >= {*settings.guardrails}
    ):
        return None
    read = partial(sends_requests, event=settings.span_event, at=start.starts_at)
    return Reading(question=SLOW, read=read, default=False, kind=bool)


def _with_slow(
    assignment: Assignment, answers: Answers, start: "Start"
) -> tuple[Settings, Sequence[str]]:
    """Returns settings and guardrails, with `slow` where none were chosen and requests come."""
    settings, reading = assignment.binding.settings, _requests(assignment, start)
    if reading is None or not reading.value(answers):
        return settings, assignment.guardrails
    slow = Metric(
        sources=[settings.span_event],
        over=["p50", "p90", "p95", "p99"],
        better="lower",
        # What comes after the window is not seen.
        window_seconds=30 * MINUTE,
    )
    metrics = {**settings.metrics, SLOW: slow}
    return structs.replace(settings, metrics=metrics), [*assignment.guardrails, SLOW]


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


# --- Unit and routes ------------------------------------------------------------------------------


def _returning(assignment: Assignment, start: "Start") -> Reading[ReturningVisitors] | None:
    settings = assignment.binding.settings
    # A token vouches for a session, and a sample takes whole sessions. Sessions of history are
    # units: an import counts them before any router can be read of it.
    is_session = settings.signed_assignments or settings.sample_rate < 1 or start.is_history
    if settings.unit != "auto" or is_session:
        return None
    return Reading(
        question="unit",
        read=partial(read_returning, settings=settings),
        default=ReturningVisitors(),
        kind=ReturningVisitors,
    )


def _unit(assignment: Assignment, answers: Answers, start: "Start") -> str:
    """Returns the unit that an experiment counts: the project's, or by `auto` the router's."""
    unit, reading = assignment.binding.settings.unit, _returning(assignment, start)
    returning = None if reading is None else reading.value(answers).unit
    return returning or ("session" if unit == "auto" else unit)


def _routes_seen(assignment: Assignment) -> Reading[list[str] | None] | None:
    if assignment.patterns is None:
        return None
    read = partial(
        affected_routes,
        table=RouteTable(assignment.patterns),
        affected=assignment.deploy.affected_routes,
        since=min(assignment.deploy.deployed_at, assignment.until),
    )
    return Reading(question="routes", read=read, default=None, kind=list[str] | None)


def _routes(assignment: Assignment, answers: Answers) -> tuple[Sequence[str] | None, RoutesBecause]:
    """Returns the routes that expose a unit, None for all, and why these.

    Where none are named they are the routes that the deploy affects and events have named of late.
    """
    if assignment.request.routes is not None:
        return assignment.request.routes, "named"
    reading = _routes_seen(assignment)
    affected = None if reading is None else reading.value(answers)
    return (affected, "affected") if affected else (None, "all")


# --- The start: when exposure begins, and whether the registration came after a look --------------


@dataclass(frozen=True, kw_only=True)
class Start:
    """When the exposure of an experiment begins.

    Attributes:
        declared_at: The same, where exposure begins with a late registration alone.
    """

    starts_at: datetime
    began_at: datetime
    declared_at: datetime | None
    is_history: bool

    @property
    def late_by(self) -> timedelta:
        """How long after its canary it starts, where it was registered late."""
        return timedelta() if self.declared_at is None else self.starts_at - self.declared_at


def start_of(assignment: Assignment, answers: Answers) -> Start:
    """Returns when exposure begins: with the first step of the ramp, or of a flag's being on.

    It begins with the binding where the experiment is repeated, and where it was chosen late.
    History is registered after its events by its nature: it keeps its past.
    """
    binding, bound_at = assignment.binding, assignment.until
    began_at, brought = _began_at(assignment, answers), binding.history_until
    starts_at, is_late = began_at, _is_chosen_late(assignment, answers)
    if assignment.request.is_portfolio:
        # Users had the treatment long before: units of the old build that came then had it by
        # chance. The binding is meant where no share of the hold-back is declared yet.
        starts_at = max(began_at, binding.held_back_since or bound_at)
    if is_late or binding.is_repeated:
        starts_at = bound_at
    if binding.is_handed_out and began_at >= bound_at:
        # Units got control until now, those too that are in treatment from here on.
        starts_at = assignment.frozen_at
    return Start(
        starts_at=starts_at,
        began_at=began_at,
        declared_at=began_at if is_late else None,
        is_history=brought is not None and brought >= starts_at,
    )


def _before(assignment: Assignment, start: Start) -> datetime:
    """Returns up to when the past is read: to the declaration, and never beyond the binding."""
    return min(start.starts_at - start.late_by, assignment.until)


def _flagged(assignment: Assignment) -> Reading[datetime | None] | None:
    binding, flag = assignment.binding, assignment.request.treatment_flag
    if flag is None:
        return None
    since, signed_only = (
        min(binding.began_at, assignment.until),
        binding.settings.signed_assignments,
    )
    return Reading(
        question="start",
        read=partial(first_flagged, flag=flag, since=since, signed_only=signed_only),
        default=None,
        kind=datetime | None,
    )


def _began_at(assignment: Assignment, answers: Answers) -> datetime:
    """Returns when the declaration began: with its first step; of a flag, when it was first on."""
    reading = _flagged(assignment)
    if reading is None:
        return assignment.binding.began_at
    return reading.value(answers) or assignment.until


def _closing(assignment: Assignment, answers: Answers) -> Reading[datetime | None] | None:
    """Returns the reading of the first look; None where the past counts whenever it is chosen."""
    deploy, settings = assignment.deploy, assignment.binding.settings
    began_at, brought = _began_at(assignment, answers), assignment.binding.history_until
    if assignment.request.is_portfolio or not (brought is None or brought < began_at):
        return None
    is_declared = deploy.allocation is not None and 0 < deploy.allocation < 1
    enough, longest = _DECLARED if is_declared else _UNDECLARED
    since = min(began_at, assignment.until)
    longest += timedelta(seconds=settings.grace_seconds)
    return Reading(
        question="late start",
        read=partial(first_closing, since=since, enough=enough, longest=longest),
        # A registration that cannot be shown to precede a look counts as later than it.
        default=since,
        kind=datetime | None,
    )


def _is_chosen_late(assignment: Assignment, answers: Answers) -> bool:
    """Tells whether something that the verdict reads was chosen when it could be seen already.

    By then the exposures of the first analysis block since the declaration had closed.
    """
    reading = _closing(assignment, answers)
    closed = None if reading is None else reading.value(answers)
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
