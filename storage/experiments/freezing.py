"""The freeze: a bound experiment gets its start and its policy, from the log as of its binding.

The pipeline freezes, in a transaction that no writer waits for; whenever it does, it reads alike.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import structs
from sqlalchemy import Connection, Row, func, select, text, update

from domain.document import document_text
from domain.metric import SLOW, FrozenMetric, Metric
from domain.policy import BLOCK_MIN_UNITS, UNDECLARED_MIN_UNITS, FrozenAnswer, Policy, RoutesBecause
from domain.registration import Registration
from domain.route import RouteTable
from storage.experiments.binding import Binding
from storage.experiments.graphs import graph_patterns
from storage.experiments.policy import Quantiles, frozen_policy, watched_guardrails
from storage.experiments.readings import (
    HISTORY_DAYS,
    HistorySums,
    PastEvents,
    affected_routes,
    cap_of,
    first_values,
    fitting_unit,
    history_of,
    sends_requests,
)
from storage.postgres.refusal import Conflict
from storage.schema.clock import store_time
from storage.schema.encoding import EPOCH, MICROSECOND, compared_value
from storage.schema.past_log import EVENTS, FLAG, PastFiles, PastLog
from storage.schema.tables import deploys, experiments
from storage.tenants.settings import Settings, frozen_settings

# How many units an analysis block waits for, and how long (docs/statistics.md, 'Counts').
_DECLARED = (BLOCK_MIN_UNITS, timedelta(hours=24))
_UNDECLARED = (UNDECLARED_MIN_UNITS, timedelta(hours=6))


@dataclass(frozen=True, kw_only=True)
class Bound:
    """An experiment as it was bound: all that its policy is frozen from, besides the log."""

    row: Row[Any]
    deploy: Row[Any]
    request: Registration
    binding: Binding

    @property
    def metric(self) -> str:
        """The target metric."""
        return self.row.target_metric

    @property
    def guardrails(self) -> Sequence[str]:
        """The guardrails that its registration asked for, or its project's."""
        return watched_guardrails(self.binding.settings, self.request.guardrails)


def freeze(connection: Connection, experiment_id: str, *, files: PastFiles | None = None) -> None:
    """Freezes the policy that a bound experiment's verdict reads, or why it cannot start.

    Args:
        files: Of days that PostgreSQL does not have whole; None to read it alone.
    """
    bound = _bound(connection, experiment_id)
    try:
        frozen = _frozen(connection, bound, files=files)
    except Conflict as conflict:
        frozen = {"cannot_start": conflict.detail}
    own = experiments.c
    connection.execute(
        update(experiments)
        # Two runs freeze alike: the first stays.
        .where(own.experiment_id == experiment_id, own.frozen_at.is_(None))
        .values(frozen)
    )


def frozen_again(
    connection: Connection, experiment_id: str, *, files: PastFiles | None = None
) -> tuple[dict[str, Any], dict[str, Any], Policy]:
    """Returns a policy as it is stored, frozen again by its kept answers, and by the log as of now.

    Nothing is stored.
    """
    bound = _bound(connection, experiment_id)
    stored = bound.row.policy
    by_kept, by_log = (
        _frozen(connection, bound, kept, files=files)["policy"]
        for kept in (Policy.of(stored).frozen_from, None)
    )
    return stored, by_kept, Policy.of(by_log)


def _bound(connection: Connection, experiment_id: str) -> Bound:
    query = select(experiments).where(experiments.c.experiment_id == experiment_id)
    row = connection.execute(query).one()
    deploy = connection.execute(select(deploys).where(deploys.c.deploy_id == row.deploy_id)).one()
    return Bound(
        row=row,
        deploy=deploy,
        request=Registration.of_stored(row.request),
        binding=msgspec.convert(row.binding, Binding),
    )


def _frozen(
    connection: Connection,
    bound: Bound,
    kept: Sequence[FrozenAnswer] | None = None,
    *,
    files: PastFiles | None = None,
) -> dict[str, Any]:
    """Returns the columns of a frozen experiment, read from the log, or from kept answers.

    Raises:
        Conflict: The target's threshold cannot be frozen.
    """
    row, binding = bound.row, bound.binding
    events = PastEvents(
        past=PastLog(connection, until=row.bound_at, files=files),
        project_id=row.project_id,
        environment=row.environment,
        kept=None if kept is None else iter(kept),
    )
    start = _start_of(connection, bound, events)
    settings, guardrails = _with_slow(bound, events, at=start.starts_at)
    unit = fitting_unit(events, settings, is_history=start.is_history)
    before = min(start.starts_at - start.late_by, events.past.until)
    routes, because = _routes(connection, bound, events)
    policy = frozen_policy(
        settings,
        unit=unit,
        target=bound.metric,
        guardrails=[name for name in guardrails if name not in binding.unseen_guardrails],
        environment=row.environment,
        routes=routes,
        routes_because=because,
        graph_id=bound.deploy.graph_id,
        value_per_conversion=bound.request.value_per_conversion,
        attempt=binding.attempt,
        earlier_attempts=binding.earlier_attempts,
        flag=bound.request.treatment_flag,
        is_portfolio=bound.request.is_portfolio,
        late_by=start.late_by,
        retrospective=start.is_history,
        caps=lambda metric: events.answered(
            f"cap of {metric.name}",
            lambda: cap_of(events, metric, before=before),
            default=None,
            kind=int | None,
        ),
        quantiles=lambda metric, shares: events.answered(
            f"thresholds of {metric.name}",
            lambda: first_values(events, metric, shares, by_user=unit == "user", before=before),
            default=None,
            kind=Quantiles | None,
        ),
        history=lambda metric: _history(bound, events, metric, start=start),
        answers=events.answers,
    )
    asked = {"project_id": row.project_id, "bound_at": row.bound_at}
    for learned in connection.execute(_LEARNED, asked):
        policy = structs.replace(policy, learned_on=learned.day, learned_prior=learned.weights)
    return {
        "frozen_at": func.clock_timestamp(),
        "declared_at": start.declared_at,
        "starts_at": start.starts_at,
        "policy": json.loads(document_text(policy)),
    }


_LEARNED = text("""
SELECT day::text AS day, weights FROM learned_priors
WHERE project_id = :project_id AND day < (CAST(:bound_at AS timestamptz) AT TIME ZONE 'UTC')::date
ORDER BY day DESC LIMIT 1
""")


def _history(
    bound: Bound, events: PastEvents, metric: FrozenMetric, *, start: "Start"
) -> tuple[datetime, datetime] | None:
    """Returns from when to when the history was received that predicts a metric of users.

    None where a build with the change was served then.
    """
    is_whole = start.starts_at - start.late_by == start.began_at
    if bound.binding.served_before or metric.cap is None or not is_whole:
        return None
    before = min(start.began_at, events.past.until)
    trusted_only = bound.binding.settings.trusted_identity
    sums = events.answered(
        f"history of {metric.name}",
        lambda: history_of(events, metric, before=before, trusted_only=trusted_only),
        default=None,
        kind=HistorySums | None,
    )
    return (before - HISTORY_DAYS, before) if sums is not None and sums.predicts else None


def _with_slow(bound: Bound, events: PastEvents, *, at: datetime) -> tuple[Settings, Sequence[str]]:
    """Returns settings and guardrails, with `slow` where none were chosen and requests come."""
    settings, guardrails = bound.binding.settings, bound.guardrails
    if (
        bound.binding.chose_guardrails
        or SLOW in settings.metrics
        or not {*guardrails} >= {*settings.guardrails}
        or not events.answered(
            SLOW,
            lambda: sends_requests(events, settings.span_event, at=at),
            default=False,
            kind=bool,
        )
    ):
        return settings, guardrails
    slow = Metric(
        sources=[settings.span_event],
        over=["p50", "p90", "p95", "p99"],
        better="lower",
        window_seconds=300,
    )
    metrics = {**settings.metrics, SLOW: slow}
    return structs.replace(settings, metrics=metrics), [*guardrails, SLOW]


def _routes(
    connection: Connection, bound: Bound, events: PastEvents
) -> tuple[list[str] | None, RoutesBecause]:
    """Returns the routes that expose a unit, None for all, and why these.

    Where none are named they are the routes that the deploy affects and events have named of late.
    """
    deploy, request = bound.deploy, bound.request
    if request.routes is not None:
        return list(request.routes), "named"
    # The deploy brought the last of a portfolio's changes: its routes are that change's.
    if request.is_portfolio or not deploy.affected_routes or deploy.graph_id is None:
        return None, "all"
    table = RouteTable(graph_patterns(connection, events.project_id, deploy.graph_id))
    since = min(deploy.deployed_at, events.past.until)
    named = deploy.affected_routes
    affected = events.answered(
        "routes",
        lambda: affected_routes(events, table, named, since=since),
        default=None,
        kind=list[str] | None,
    )
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


def _start_of(connection: Connection, bound: Bound, events: PastEvents) -> Start:
    """Returns when exposure begins: with the first step of the ramp, or of a flag's being on.

    It begins with the binding where the experiment is repeated, and where it was chosen late.
    History is registered after its events by its nature: it keeps its past.
    """
    binding, bound_at = bound.binding, bound.row.bound_at
    began_at, brought = _began_at(bound, events), bound.binding.history_until
    starts_at, is_late = began_at, False
    if bound.request.is_portfolio:
        # Users had the treatment long before: units of the old build that came then had it by
        # chance. The binding is meant where no share of the hold-back is declared yet.
        starts_at = max(began_at, binding.held_back_since or bound_at)
    elif brought is None or brought < began_at:
        is_late = _is_chosen_late(connection, bound, events, since=began_at)
    if is_late or binding.is_repeated:
        starts_at = bound_at
    if binding.is_handed_out and began_at >= bound_at:
        # Units got control until now, those too that are in treatment from here on.
        starts_at = bound.row.frozen_at or store_time(connection)
    return Start(
        starts_at=starts_at,
        began_at=began_at,
        declared_at=began_at if is_late else None,
        is_history=brought is not None and brought >= starts_at,
    )


_FIRST_FLAGGED = f"""
SELECT min(occurred) AS occurred FROM {EVENTS} AS e
WHERE occurred >= :since AND {compared_value(FLAG)} = :treatment
  AND (trusted OR signed OR NOT :signed_only)
"""


def _began_at(bound: Bound, events: PastEvents) -> datetime:
    """Returns when the declaration began: with its first step; of a flag, when it was first on."""
    binding, flag = bound.binding, bound.request.treatment_flag
    if flag is None:
        return binding.began_at
    asked = {
        "since": min(binding.began_at, events.past.until),
        "flag": flag.name,
        "treatment": flag.treatment,
        "signed_only": binding.settings.signed_assignments,
    }
    first = events.answered(
        "start",
        lambda: _moment(events.rows(_FIRST_FLAGGED, **asked)[0].occurred),
        default=None,
        kind=datetime | None,
    )
    return first or bound.row.bound_at


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else EPOCH + microseconds * MICROSECOND


# What closes later is not asked: so whenever it is read, it is the same.
_FIRST_CLOSING = text("""
SELECT min(closed_at) AS closed_at FROM (
    SELECT closed_at, sum(sum(sessions)) OVER (ORDER BY block) AS units
    FROM seen_commits
    WHERE project_id = :project_id AND environment = :environment
      AND block > CAST(:since AS timestamptz) - interval '5 minutes' AND closed_at < :until
    GROUP BY block, closed_at
) AS seen WHERE units >= :enough
""")
_IS_ANY = f"SELECT 1 AS event FROM {EVENTS} AS e LIMIT 1"


def _first_closing(
    events: PastEvents, *, since: datetime, enough: int, longest: timedelta
) -> datetime | None:
    """Returns when the first analysis block closed since a time; None where that is still open.

    It waits for so many units, and no longer than a time. Where no event came nobody could look.
    """
    until, latest = events.past.until, since + longest
    ((closed_at,),) = events.stored(_FIRST_CLOSING, since=since, enough=enough, until=until)
    if latest < min(until, closed_at or until):
        before = latest + MICROSECOND
        if events.rows(_IS_ANY, since=since, before=before):
            return latest
    return closed_at


def _is_chosen_late(
    connection: Connection, bound: Bound, events: PastEvents, *, since: datetime
) -> bool:
    """Tells whether something that the verdict reads was chosen when it could be seen already.

    By then the exposures of the first analysis block since the declaration had closed.
    """
    deploy, request, settings = bound.deploy, bound.request, bound.binding.settings
    is_declared = deploy.allocation is not None and 0 < deploy.allocation < 1
    enough, longest = _DECLARED if is_declared else _UNDECLARED
    since = min(since, events.past.until)
    longest += timedelta(seconds=settings.grace_seconds)
    # A registration that cannot be shown to precede a look counts as later than it.
    closed = events.answered(
        "start",
        lambda: _first_closing(events, since=since, enough=enough, longest=longest),
        default=since,
        kind=datetime | None,
    )
    if closed is None:
        return False
    asked = {"project_id": bound.row.project_id, "since": closed, "until": events.past.until}
    rows = connection.execute(_SETTINGS_BEFORE, asked)
    before = {row.member: row.before for row in rows}
    held = {*before.get("guardrails", settings.guardrails)}
    control = request.control_commit and bound.row.control_commit
    named = bound.row.registered_at > closed and (
        bound.metric != before.get("default_metric", settings.default_metric)
        or request.routes is not None
        or control not in (None, deploy.base_commit)
        or not held <= {bound.metric, *bound.guardrails}
    )
    return named or _has_changed(before, bound)


# The settings that were changed since a time, as they were then.
_SETTINGS_BEFORE = text("""
SELECT DISTINCT ON (changed.member) changed.member, changed.before
FROM audit_trail AS a
CROSS JOIN LATERAL jsonb_to_recordset(a.changes) AS changed (member text, before jsonb)
WHERE a.project_id = :project_id AND a.action = 'settings_changed'
  AND a.happened_at > :since AND a.happened_at <= :until
ORDER BY changed.member, a.entry_id
""")


def _has_changed(before: Mapping[str, Any], bound: Bound) -> bool:
    """Tells whether settings that the verdict reads are no longer as they were."""
    now = msgspec.to_builtins(bound.binding.settings)
    if any(
        member in before and before[member] != now[member] for member in frozen_settings("whole")
    ):
        return True
    # A new guardrail takes nothing away.
    return any(
        member == f"metrics.{name}" or member.startswith(f"metrics.{name}.")
        for member, value in before.items()
        for name in (bound.metric, *bound.guardrails)
        if name == bound.metric or value is not None
    )
