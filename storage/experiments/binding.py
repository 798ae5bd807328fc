"""The binding: an experiment meets its deploy, and all that its verdict reads is frozen."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import structs, to_builtins
from sqlalchemy import Connection, Row, or_, select, text, update

from domain.metric import SLOW, FrozenMetric, Metric
from domain.policy import RoutesBecause
from domain.registration import Registration
from domain.route import RouteTable
from storage.experiments.attempts import earlier_attempts, provenance_of
from storage.experiments.commit_ids import commit_meant, remember_commit_ids
from storage.experiments.graphs import graph_patterns
from storage.experiments.histories import read_history, remember_base
from storage.experiments.policy import frozen_policy, watched_guardrails
from storage.experiments.readings import (
    HISTORY_DAYS,
    PastEvents,
    affected_routes,
    cap_of,
    first_values,
    fitting_unit,
    history_of,
    sends_requests,
)
from storage.experiments.serving import AHEAD, read_serving
from storage.experiments.start import Binding, Choice, Start, place_of, start_of
from storage.postgres.refusal import Conflict
from storage.schema.past_log import PastLog
from storage.schema.tables import experiments, verdicts
from storage.tenants.settings import Settings, read_settings, stored_settings


def bind_waiting(
    connection: Connection, project_id: int, deploy: Row[Any], *, bound_at: datetime, past: PastLog
) -> None:
    """Binds the experiments that wait for such a deploy."""
    waiting = connection.execute(
        select(experiments)
        .join_from(experiments, verdicts)
        .where(
            experiments.c.project_id == project_id,
            experiments.c.environment == deploy.environment,
            experiments.c.bound_at.is_(None),
            experiments.c.closed_at.is_(None),
            verdicts.c.decided.is_(False),
            or_(
                experiments.c.treatment_commit.is_(None),
                experiments.c.treatment_commit == deploy.commit_sha,
            ),
        )
        .order_by(experiments.c.registered_at, experiments.c.experiment_id)
    ).all()
    for experiment in waiting:
        request = Registration.of_stored(experiment.request)
        try:
            binding = binding_of(
                connection,
                project_id,
                deploy,
                request,
                bound_at=bound_at,
                past=past,
            )
            # A deploy that carries nothing new is not the awaited deploy.
            if binding.change:
                bind(
                    connection,
                    project_id,
                    experiment.experiment_id,
                    request,
                    binding=binding,
                    metric=experiment.target_metric,
                    registered_at=experiment.registered_at,
                )
        except Conflict:
            # Its control's id begins several commits by now, or its target has too short a history:
            # it waits, and the deploy is recorded.
            continue


def binding_of(
    connection: Connection,
    project_id: int,
    deploy: Row[Any],
    request: Registration,
    *,
    bound_at: datetime,
    past: PastLog,
) -> Binding:
    """Returns the scope of an experiment on this deploy, as known at the binding.

    A control that is named gives the treatment the base that it may lack; so does, until a post
    names a base, the build of users beside it.

    Raises:
        Conflict: Its id begins several commits.
    """
    control_commit, flag = request.control_commit, request.treatment_flag
    events = PastEvents(past=past, project_id=project_id, environment=deploy.environment)
    if flag is not None:
        # A single build, two behaviours: what differs is the flag alone.
        return Binding(
            deploy=deploy,
            control_commit=deploy.commit_sha,
            change=[flag.change],
            bound_at=bound_at,
            events=events,
            flag=flag,
        )
    environment, treatment = deploy.environment, deploy.commit_sha
    history = read_history(connection, project_id, environment, known_at=bound_at)
    if control_commit is None:
        serving = read_serving(
            connection,
            project_id,
            environment,
            at=bound_at,
            until=_last_served(connection, project_id, deploy, bound_at=bound_at),
            history=history,
        )
        control = serving.control_of(treatment)
    else:
        control = commit_meant(connection, project_id, control_commit)
        if control is None:
            named = [control_commit]
            known = remember_commit_ids(connection, project_id, named, recorded_at=bound_at)
            control = known[control_commit]
    if control is not None:
        remember_base(
            connection,
            project_id,
            environment,
            treatment,
            base=control,
            assumed=control_commit is None,
            recorded_at=bound_at,
        )
        history = read_history(connection, project_id, environment, known_at=bound_at)
    carried = history.lineage(treatment)
    lacking = frozenset[str]() if control is None else history.lineage(control)
    return Binding(
        deploy=deploy,
        control_commit=control,
        change=sorted(carried - lacking),
        bound_at=bound_at,
        events=events,
    )


_IS_LAST_STEP = text("""
SELECT NOT EXISTS (
    SELECT FROM deploys
    WHERE project_id = :project_id AND environment = :environment AND commit_sha = :commit
      AND withdrawn_at IS NULL
      AND (deployed_at, recorded_at, deploy_id) > (:deployed_at, :recorded_at, :deploy_id)
)
""")


def _last_served(
    connection: Connection, project_id: int, deploy: Row[Any], *, bound_at: datetime
) -> datetime:
    """Returns the time whose builds a treatment is compared with: now, while its step is its last.

    Of a canary that was promoted or withdrawn before it was registered, as in history that is
    replayed, that is when the step began.
    """
    is_last = connection.execute(_IS_LAST_STEP, place_of(project_id, deploy)).scalar_one()
    return max(bound_at + AHEAD, deploy.deployed_at) if is_last else deploy.deployed_at


def bind(
    connection: Connection,
    project_id: int,
    experiment_id: str,
    request: Registration,
    *,
    binding: Binding,
    metric: str,
    registered_at: datetime,
) -> None:
    """Freezes the policy that the experiment's verdict reads."""
    settings = read_settings(connection, project_id)
    deploy, bound_at = binding.deploy, binding.bound_at
    earlier = earlier_attempts(
        connection,
        project_id,
        experiment_id,
        environment=deploy.environment,
        change=binding.change,
        provenance=None
        if binding.flag is not None
        else provenance_of(deploy.commit, default_branch=settings.default_branch),
        bound_at=bound_at,
    )
    guardrails = watched_guardrails(settings, request.guardrails)
    choice = Choice(
        request=request,
        settings=settings,
        metric=metric,
        guardrails=guardrails,
        registered_at=registered_at,
    )
    start = start_of(connection, project_id, binding, choice)
    events = binding.events
    settings, guardrails = _with_slow(connection, project_id, choice, events, at=start.starts_at)
    unit = fitting_unit(events, settings, is_history=start.is_history)
    before = min(start.starts_at - start.late_by, binding.events.past.until)
    routes, because = _routes(connection, binding, request, events)
    policy = frozen_policy(
        settings,
        unit=unit,
        target=metric,
        guardrails=[name for name in guardrails if name not in request.unseen_guardrails],
        environment=deploy.environment,
        routes=routes,
        routes_because=because,
        graph_id=deploy.graph_id,
        value_per_conversion=request.value_per_conversion,
        earlier_attempts=earlier,
        flag=binding.flag,
        is_portfolio=request.is_portfolio,
        late_by=start.late_by,
        retrospective=start.is_history,
        caps=lambda metric: events.answered(
            f"cap of {metric.name}", lambda: cap_of(events, metric, before=before), default=None
        ),
        quantiles=lambda metric, shares: events.answered(
            f"thresholds of {metric.name}",
            lambda: first_values(events, metric, shares, by_user=unit == "user", before=before),
            default=None,
        ),
        history=partial(
            *(_history, connection, project_id, binding, events),
            start=start,
            trusted_only=settings.trusted_identity,
        ),
        read_from=events.read_from,
        unread=events.unread,
    )
    connection.execute(
        update(experiments)
        .where(experiments.c.project_id == project_id, experiments.c.experiment_id == experiment_id)
        .values(
            environment=deploy.environment,
            treatment_commit=deploy.commit_sha,
            control_commit=binding.control_commit,
            change=binding.change,
            deploy_id=deploy.deploy_id,
            bound_at=bound_at,
            declared_at=start.declared_at,
            starts_at=start.starts_at,
            attempt=policy.attempt,
            policy=to_builtins(policy),
        )
    )


_DEPLOYED_BEFORE = text("""
SELECT DISTINCT commit_sha FROM deploys
WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
  AND deployed_at >= :since AND deployed_at < :before
""")


def _history(
    connection: Connection,
    project_id: int,
    binding: Binding,
    events: PastEvents,
    metric: FrozenMetric,
    *,
    start: Start,
    trusted_only: bool,
) -> tuple[datetime, datetime] | None:
    """Returns from when to when the history was received that predicts a metric of users.

    None where a build with the change was served then.
    """
    environment, before = binding.deploy.environment, min(start.began_at, binding.events.past.until)
    since, is_whole = before - HISTORY_DAYS, start.starts_at - start.late_by == start.began_at
    if binding.flag is not None or metric.cap is None or not is_whole:
        return None
    place = {"project_id": project_id, "environment": environment, "since": since, "before": before}
    known = read_history(connection, project_id, environment, known_at=binding.bound_at)
    if any(
        not known.lineage(commit).isdisjoint(binding.change)
        for commit in connection.execute(_DEPLOYED_BEFORE, place).scalars()
    ):
        return None
    return events.answered(
        f"history of {metric.name}",
        lambda: history_of(events, metric, before=before, trusted_only=trusted_only),
        default=None,
    )


def _with_slow(
    connection: Connection, project_id: int, choice: Choice, events: PastEvents, *, at: datetime
) -> tuple[Settings, Sequence[str]]:
    """Returns settings and guardrails, with `slow` where none were chosen and requests come."""
    settings, guardrails = choice.settings, choice.guardrails
    if (
        "guardrails" in stored_settings(connection, project_id)
        or SLOW in settings.metrics
        or not {*guardrails} >= {*settings.guardrails}
        or not events.answered(
            SLOW, lambda: sends_requests(events, settings.span_event, at=at), default=False
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
    connection: Connection, binding: Binding, request: Registration, events: PastEvents
) -> tuple[list[str] | None, RoutesBecause]:
    """Returns the routes that expose a unit, None for all, and why these.

    Where none are named they are the routes that the deploy affects and events have named of late.
    """
    deploy = binding.deploy
    if request.routes is not None:
        return list(request.routes), "named"
    # The deploy brought the last of a portfolio's changes: its routes are that change's.
    if request.is_portfolio or not deploy.affected_routes or deploy.graph_id is None:
        return None, "all"
    table = RouteTable(graph_patterns(connection, events.project_id, deploy.graph_id))
    since = min(deploy.deployed_at, events.past.until)
    named = deploy.affected_routes
    affected = events.answered(
        "routes", lambda: affected_routes(events, table, named, since=since), default=None
    )
    return (affected, "affected") if affected else (None, "all")
