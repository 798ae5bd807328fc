"""The binding: an experiment meets its deploy, and all that its verdict reads is frozen."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from msgspec import structs
from sqlalchemy import Connection, Row, or_, select, text, update

from domain.currency import RATE_SCALE, conversion_factor
from domain.lineage.flag import Flag
from domain.metric import SLOW, Metric, quantile_share
from domain.registration import Registration
from domain.route import RouteTable, canonical_route
from storage.experiments.attempts import earlier_attempts, provenance_of
from storage.experiments.commit_ids import commit_meant, remember_commit_ids
from storage.experiments.graphs import graph_patterns
from storage.experiments.histories import read_history, remember_base
from storage.experiments.policy import frozen_policy, watched_guardrails
from storage.experiments.router import fitting_unit
from storage.experiments.serving import AHEAD, read_serving
from storage.experiments.start import Choice, Start, place_of, start_of
from storage.postgres.refusal import Conflict
from storage.schema.past_log import PastLog
from storage.schema.tables import experiments, verdicts
from storage.tenants.settings import Settings, read_settings, stored_settings

_ROUTES_SEEN_WITHIN = timedelta(days=7)
# docs/statistics.md, 'Continuous metrics': what a mean is capped at unless the project says so.
_CAP_FROM = timedelta(days=28)
_FEW_VALUES, _MANY_VALUES = 20, 1000
_MEDIANS = 20
_MANY_UNITS = 100_000
# docs/statistics.md, 'Regression adjustment': the share of the variance that history has to explain
# of what so many users did at least, seen in a day or else in a week.
_LEAST_EXPLAINED = 0.08
_FEW_USERS, _MANY_USERS = 500, 5000


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The scope of an experiment: its environment, start, and change."""

    deploy: Row[Any]
    control_commit: str | None
    change: list[str]
    bound_at: datetime
    past: PastLog
    flag: Flag | None = None


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
    if flag is not None:
        # A single build, two behaviours: what differs is the flag alone.
        return Binding(
            deploy=deploy,
            control_commit=deploy.commit_sha,
            change=[flag.change],
            bound_at=bound_at,
            past=past,
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
        past=past,
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
    settings, guardrails = _with_slow(connection, project_id, binding, choice, at=start.starts_at)
    unit = fitting_unit(
        binding.past, project_id, deploy.environment, settings, is_history=start.is_history
    )
    place = (binding.past, project_id, deploy.environment)
    before = min(start.starts_at - start.late_by, binding.past.until)
    routes, because = _routes(connection, project_id, binding, request)
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
        caps=partial(_cap, *place, before=before),
        quantiles=partial(_first_values, *place, by_user=unit == "user", before=before),
        history=partial(_history, connection, project_id, binding, settings, start=start),
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
            attempt=policy["attempt"],
            policy=policy,
        )
    )


def has_values(properties: str, asked: str = "CAST(:asked AS jsonb)") -> str:
    """Returns SQL for whether an event has the values of properties that a metric asks for."""
    return f"""NOT EXISTS (
    SELECT FROM jsonb_each({asked}) AS a
    WHERE NOT coalesce(a.value ? ({properties} ->> a.key), false)
)"""


_VALUES = f"""
    SELECT pseudonym, occurred_at, received_at, value * 0.000001 AS value FROM runtime_events
    WHERE project_id = :project_id AND environment = :environment AND event = ANY(:sources)
      AND received_at >= :since AND received_at < :before AND value <> 0
      AND (trusted OR signed OR NOT :vouched_only) AND {has_values("properties")}
    UNION ALL
    SELECT pseudonym, occurred_at, received_at, amount_value * coalesce(x.factor, 1)
    FROM revenue_events
    LEFT JOIN unnest(CAST(:others AS text[]), CAST(:factors AS numeric[])) AS x (currency, factor)
      ON x.currency = amount_currency
    WHERE project_id = :project_id AND event = ANY(:sources)
      AND (amount_currency = :currency OR x.factor IS NOT NULL)
      AND received_at >= :since AND received_at < :before AND amount_value <> 0
      AND {has_values("attributes")}
"""

_CAP = text(f"""
SELECT count(*) AS values,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(value)) AS median,
    percentile_disc(0.95) WITHIN GROUP (ORDER BY abs(value)) AS percentile_95,
    percentile_disc(0.99) WITHIN GROUP (ORDER BY abs(value)) AS percentile_99
FROM ({_VALUES}) AS earlier
""")


def _valued(
    project_id: int, environment: str, definition: Mapping[str, Any], *, before: datetime
) -> dict[str, Any]:
    """Returns the parameters of `_VALUES` for a mean, up to a moment."""
    rates: Mapping[str, float] = definition.get("rates", {})
    return {
        "project_id": project_id,
        "environment": environment,
        "sources": definition["sources"],
        "currency": definition["currency"],
        "vouched_only": definition.get("vouched_only", False),
        "asked": json.dumps(definition.get("where", {})),
        "others": list(rates),
        "factors": [
            Decimal(conversion_factor(rate, of=code, to=definition["currency"])) / RATE_SCALE
            for code, rate in rates.items()
        ],
        "since": before - _CAP_FROM,
        "before": before,
    }


def _cap(
    past: PastLog,
    project_id: int,
    environment: str,
    definition: Mapping[str, Any],
    *,
    before: datetime,
) -> float | None:
    """Returns the cap of a metric's values, by those before the start; None of too few.

    That is the 99th percentile of the values that are not zero; where these are fewer than a
    thousand the larger of twenty times their median and their 95th percentile. Without a cap a
    single extreme value hides the effect on all others.
    """
    (row,) = past.rows(_CAP, _valued(project_id, environment, definition, before=before))
    if row.values >= _MANY_VALUES:
        return float(row.percentile_99)
    if row.values >= _FEW_VALUES:
        return max(_MEDIANS * float(row.median), float(row.percentile_95))
    return None


_DEPLOYED_BEFORE = text("""
SELECT DISTINCT commit_sha FROM deploys
WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
  AND deployed_at >= :since AND deployed_at < :before
""")

_EXPLAINED = text(f"""
-- Users as an experiment would have met them that began at :split, what they brought from then on,
-- and what before.
WITH met AS (
    SELECT pseudonym, min(occurred_at) AS met_at FROM runtime_events
    WHERE project_id = :project_id AND environment = :environment AND pseudonym IS NOT NULL
      AND (trusted OR NOT :trusted_only) AND received_at >= :split AND received_at < :met_until
    GROUP BY pseudonym
)
SELECT count(*) AS users, corr(later, earlier) ^ 2 AS explained
FROM (
    SELECT coalesce(sum(capped) FILTER (WHERE received_at < :split), 0) AS earlier,
        coalesce(sum(capped) FILTER (
            WHERE received_at >= :split AND occurred_at BETWEEN met_at AND met_at + :window
        ), 0) AS later
    FROM met LEFT JOIN (
        SELECT *, greatest(least(value, CAST(:cap AS float)), -CAST(:cap AS float)) AS capped
        FROM ({_VALUES}) AS valued
    ) AS valued USING (pseudonym)
    GROUP BY pseudonym
) AS users
""")


def _history(
    connection: Connection,
    project_id: int,
    binding: Binding,
    settings: Settings,
    definition: Mapping[str, Any],
    *,
    start: Start,
) -> list[str] | None:
    """Returns from when to when the history was received that predicts a metric of users.

    That is the 28 days before the canary; None where a build with the change was served then, or
    where these days do not say by themselves that the earlier predict the later.
    """
    environment, before = binding.deploy.environment, min(start.began_at, binding.past.until)
    since, is_whole = before - _CAP_FROM, start.starts_at - start.late_by == start.began_at
    if binding.flag is not None or definition["cap"] is None or not is_whole:
        return None
    place = {"project_id": project_id, "environment": environment, "since": since, "before": before}
    known = read_history(connection, project_id, environment, known_at=binding.bound_at)
    if any(
        not known.lineage(commit).isdisjoint(binding.change)
        for commit in connection.execute(_DEPLOYED_BEFORE, place).scalars()
    ):
        return None
    window = timedelta(seconds=definition["window_seconds"])
    asked = _valued(project_id, environment, definition, before=before)
    asked |= {"trusted_only": settings.trusted_identity, "window": window, "cap": definition["cap"]}
    for days in (timedelta(days=1), timedelta(days=7)):
        split = before - window - days
        bounds = {"split": split, "met_until": split + days}
        (row,) = binding.past.rows(_EXPLAINED, {**asked, **bounds})
        if row.users >= _MANY_USERS:
            break
    explains = row.users >= _FEW_USERS and (row.explained or 0.0) >= _LEAST_EXPLAINED
    return [since.isoformat(), before.isoformat()] if explains else None


_SENDS_REQUESTS = text("""
SELECT FROM runtime_events
WHERE project_id = :project_id AND environment = :environment AND event = :event
  AND received_at >= :since AND received_at < :before AND value IS NOT NULL
LIMIT 1
""")


def _with_slow(
    connection: Connection, project_id: int, binding: Binding, choice: Choice, *, at: datetime
) -> tuple[Settings, Sequence[str]]:
    """Returns settings and guardrails, with `slow` where none were chosen and requests come."""
    settings, guardrails = choice.settings, choice.guardrails
    if (
        "guardrails" in stored_settings(connection, project_id)
        or SLOW in settings.metrics
        or not {*guardrails} >= {*settings.guardrails}
    ):
        return settings, guardrails
    before = min(at, binding.past.until)
    asked = {
        "project_id": project_id,
        "environment": binding.deploy.environment,
        "event": settings.span_event,
        "since": before - timedelta(hours=1),
        "before": before,
    }
    if not binding.past.rows(_SENDS_REQUESTS, asked):
        return settings, guardrails
    slow = Metric(
        sources=[settings.span_event],
        over=["p50", "p90", "p95", "p99"],
        better="lower",
        window_seconds=300,
    )
    metrics = {**settings.metrics, SLOW: slow}
    return structs.replace(settings, metrics=metrics), [*guardrails, SLOW]


_FIRST_VALUES = text(f"""
WITH firsts AS (
    SELECT DISTINCT ON (unit) value * 0.000001 AS value
    FROM (
        SELECT CASE WHEN :by_user THEN encode(pseudonym, 'hex') ELSE session_id END AS unit, value,
            occurred_at, received_at
        FROM runtime_events
        WHERE project_id = :project_id AND environment = :environment AND event = ANY(:sources)
          AND received_at >= :since AND received_at < :before AND value IS NOT NULL
          AND (trusted OR signed OR NOT :vouched_only) AND {has_values("properties")}
    ) AS valued
    WHERE unit IS NOT NULL
    ORDER BY unit, occurred_at, received_at, value
), frozen AS (
    SELECT count(*) AS units, CAST(percentile_disc(CAST(:shares AS float[]))
        WITHIN GROUP (ORDER BY value) AS float[]) AS values
    FROM firsts
)
SELECT units, values, ARRAY(
    SELECT (SELECT CAST(avg(CAST(f.value > v.value AS int)) AS float) FROM firsts AS f)
    FROM unnest(values) WITH ORDINALITY AS v (value, place) ORDER BY place
) AS exceeding
FROM frozen
""")


def _first_values(
    past: PastLog,
    project_id: int,
    environment: str,
    definition: Mapping[str, Any],
    *,
    by_user: bool,
    before: datetime,
) -> Row[Any]:
    """Returns the quantiles of a metric's first values of units, in the days before the start.

    An hour or a day with many units is read alone.
    """
    asked = {
        "project_id": project_id,
        "environment": environment,
        "sources": definition["sources"],
        "vouched_only": definition.get("vouched_only", False),
        "by_user": by_user,
        "asked": json.dumps(definition.get("where", {})),
        "shares": [quantile_share(quantile) for quantile in definition["over"]],
        "before": before,
    }
    for span in (timedelta(hours=1), timedelta(days=1)):
        (row,) = past.rows(_FIRST_VALUES, {**asked, "since": before - span})
        if row.units >= _MANY_UNITS:
            return row
    (row,) = past.rows(_FIRST_VALUES, {**asked, "since": before - _CAP_FROM})
    return row


_ROUTES_SEEN = text("""
SELECT DISTINCT route FROM runtime_events
WHERE project_id = :project_id AND environment = :environment AND route IS NOT NULL
  AND received_at >= :since
""")


def _routes(
    connection: Connection, project_id: int, binding: Binding, request: Registration
) -> tuple[list[str] | None, str]:
    """Returns the routes that expose a unit, None for all, and why these.

    Where none are named they are the routes that the deploy affects and events have named of late.
    """
    deploy = binding.deploy
    if request.routes is not None:
        return list(request.routes), "named"
    # The deploy brought the last of a portfolio's changes: its routes are that change's.
    if request.is_portfolio or not deploy.affected_routes or deploy.graph_id is None:
        return None, "all"
    table = RouteTable(graph_patterns(connection, project_id, deploy.graph_id))
    within = {
        "project_id": project_id,
        "environment": deploy.environment,
        "since": min(deploy.deployed_at, binding.past.until) - _ROUTES_SEEN_WITHIN,
    }
    patterns = {table.match(row.route) for row in binding.past.rows(_ROUTES_SEEN, within)}
    affected = {each for each in deploy.affected_routes if canonical_route(each) in patterns}
    return (sorted(affected), "affected") if affected else (None, "all")
