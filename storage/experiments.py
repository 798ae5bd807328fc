"""Experiments: a change registered, bound to its deploy with a frozen policy, closed."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, and_, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from storage.clock import binding_time
from storage.contract import waiting_contract
from storage.graphs import read_graph
from storage.histories import read_history, remember_base
from storage.placement import Flag
from storage.policy import frozen_policy
from storage.refusal import Conflict, Invalid, Missing
from storage.route import RouteTable, canonical_route
from storage.settings import read_settings
from storage.standing import standing_commit
from storage.tables import deploys, experiments, projects, verdicts

PRODUCTION = "production"
_ROUTES_SEEN_WITHIN = timedelta(days=7)
# statistics.md, 4: what a mean is capped at unless the project says so.
_CAP_FROM, _CAP_VALUES = timedelta(days=28), 1000


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A registration as requested, its form checked; what it leaves out takes its default."""

    deploy_id: str | None = None
    treatment_commit: str | None = None
    target_metric: str | None = None
    value_per_conversion: float | None = None
    control_commit: str | None = None
    treatment_flag: Flag | None = None
    routes: Sequence[str] | None = None
    guardrails: Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Registered:
    """The experiment of a registration; `created` unless it was registered before."""

    experiment_id: str
    created: bool


@dataclass(frozen=True, kw_only=True)
class _Binding:
    """What an experiment measures: where, from when, and which change."""

    deploy: Row[Any]
    control_commit: str | None
    change: list[str]
    bound_at: datetime
    routes_seen: frozenset[str]
    flag: Flag | None = None


def register(connection: Connection, project_id: int, request: Registration) -> Registered:
    """Registers a change as an experiment, or finds the open one of the same change and metric.

    Raises:
        Invalid: The deploy is unknown, contradicts the treatment, or carries no change.
        Conflict: The open experiment has other routes, guardrails or control.
    """
    connection.execute(
        select(projects.c.project_id)
        .where(projects.c.project_id == project_id)
        # Not its key: revenue events, which refer to it, hold the log's lock that we ask for next.
        .with_for_update(key_share=True)
    )
    if request.treatment_flag is not None and request.treatment_commit is not None:
        raise Invalid(
            "two_treatments",
            "a change is told by a commit or by a flag, not by both",
            pointer="/treatment_flag",
        )
    settings = read_settings(connection, project_id)
    metric = request.target_metric or settings.default_metric
    deploy = _deploy(connection, project_id, request)
    if deploy is None:
        return _register_waiting(connection, project_id, request, metric=metric)
    # Before the binding's lock, which holds up every writer of the log.
    seen = _affected_routes_seen(connection, project_id, deploy, request.routes)
    binding = _binding(
        connection,
        project_id,
        deploy,
        control_commit=request.control_commit,
        flag=request.treatment_flag,
        bound_at=binding_time(connection),
        routes_seen=seen,
    )
    if not binding.change:
        raise Invalid(
            "no_change",
            "the treatment carries no change that the control lacks: nothing can be measured",
            pointer="/control_commit" if request.control_commit else "/treatment_commit",
        )
    if (known := _open_experiment(connection, project_id, binding.change, metric)) is not None:
        _require_same(known, request, control_commit=binding.control_commit)
        return Registered(experiment_id=known.experiment_id, created=False)
    experiment_id = _insert(
        connection,
        project_id,
        request,
        metric=metric,
        environment=deploy.environment,
        registered_at=binding.bound_at,
    )
    _bind(connection, project_id, experiment_id, request, binding=binding, metric=metric)
    return Registered(experiment_id=experiment_id, created=True)


def _deploy(connection: Connection, project_id: int, request: Registration) -> Row[Any] | None:
    """Returns the deploy that a registration names or means."""
    query = select(deploys).where(deploys.c.project_id == project_id)
    if request.deploy_id is not None:
        row = connection.execute(
            query.where(deploys.c.deploy_id == request.deploy_id)
        ).one_or_none()
        if row is None:
            raise Invalid("unknown_deploy", "this project has no such deploy", pointer="/deploy_id")
        named = request.treatment_commit
        if named is not None and not row.commit_sha.startswith(named):
            raise Invalid(
                "commit_contradicts_deploy",
                f"the deploy is of commit {row.commit_sha}",
                pointer="/treatment_commit",
            )
        return row
    query = query.where(deploys.c.environment == PRODUCTION)
    if request.treatment_commit is None:
        newest = query.order_by(deploys.c.deployed_at.desc(), deploys.c.recorded_at.desc())
        return connection.execute(newest.limit(1)).one_or_none()
    history = read_history(
        connection, project_id, PRODUCTION, known_at=datetime.max.replace(tzinfo=UTC)
    )
    sha = history.resolve(request.treatment_commit) or request.treatment_commit
    # The first of its deploys: later ones are the steps of its ramp.
    first = query.where(deploys.c.commit_sha == sha).order_by(
        deploys.c.deployed_at, deploys.c.recorded_at
    )
    return connection.execute(first.limit(1)).one_or_none()


def _register_waiting(
    connection: Connection, project_id: int, request: Registration, *, metric: str
) -> Registered:
    """Registers for a deploy that is still to come."""
    same = and_(
        experiments.c.project_id == project_id,
        experiments.c.bound_at.is_(None),
        experiments.c.closed_at.is_(None),
        experiments.c.target_metric == metric,
        experiments.c.treatment_commit.is_not_distinct_from(request.treatment_commit),
        verdicts.c.decided.is_(False),
    )
    known = connection.execute(
        select(experiments).join_from(experiments, verdicts).where(same)
    ).one_or_none()
    if known is not None:
        _require_same(known, request, control_commit=request.control_commit)
        return Registered(experiment_id=known.experiment_id, created=False)
    registered_at = connection.execute(select(func.clock_timestamp())).scalar_one()
    experiment_id = _insert(
        connection,
        project_id,
        request,
        metric=metric,
        environment=PRODUCTION,
        registered_at=registered_at,
    )
    return Registered(experiment_id=experiment_id, created=True)


def _require_same(known: Row[Any], request: Registration, *, control_commit: str | None) -> None:
    """Refuses another experiment under the name of an open one."""
    asked: dict[str, object] = {}
    if request.routes is not None:
        asked["routes"] = sorted(request.routes)
    if request.guardrails is not None:
        asked["guardrails"] = sorted(request.guardrails)
    stored = {
        "routes": sorted(_routes_of(known) or ()),
        "guardrails": sorted(_guardrails_of(known) or ()),
    }
    if request.control_commit is not None:
        asked["control_commit"] = control_commit
        stored["control_commit"] = known.control_commit
    for member, value in asked.items():
        if stored[member] != value:
            raise Conflict(
                "experiment_open",
                f"experiment {known.experiment_id} of this change and metric is open with other"
                f" {member}; close it first, or leave {member} out",
            )


def _routes_of(known: Row[Any]) -> Sequence[str] | None:
    return known.policy["routes"] if known.policy else known.request.get("routes")


def _guardrails_of(known: Row[Any]) -> Sequence[str] | None:
    if known.policy is None:
        return known.request.get("guardrails")
    return [guardrail["name"] for guardrail in known.policy["guardrails"]]


def _open_experiment(
    connection: Connection, project_id: int, change: Sequence[str], metric: str
) -> Row[Any] | None:
    return connection.execute(
        select(experiments)
        .join_from(experiments, verdicts)
        .where(
            experiments.c.project_id == project_id,
            experiments.c.change == list(change),
            experiments.c.target_metric == metric,
            experiments.c.closed_at.is_(None),
            verdicts.c.decided.is_(False),
        )
    ).one_or_none()


def _insert(
    connection: Connection,
    project_id: int,
    request: Registration,
    *,
    metric: str,
    environment: str,
    registered_at: datetime,
) -> str:
    experiment_id = f"exp_{secrets.token_hex(10)}"
    named = {
        "control_commit": request.control_commit,
        "treatment_flag": None
        if request.treatment_flag is None
        else asdict(request.treatment_flag),
        "routes": None if request.routes is None else list(request.routes),
        "guardrails": None if request.guardrails is None else list(request.guardrails),
        "value_per_conversion": request.value_per_conversion,
        "metadata": request.metadata,
    }
    connection.execute(
        insert(experiments).values(
            experiment_id=experiment_id,
            project_id=project_id,
            registered_at=registered_at,
            request={name: value for name, value in named.items() if value is not None},
            target_metric=metric,
            environment=environment,
            treatment_commit=request.treatment_commit,
        )
    )
    publish_waiting(connection, experiment_id, project_id)
    return experiment_id


def publish_waiting(connection: Connection, experiment_id: str, project_id: int) -> None:
    """Gives an experiment the verdict that it has before its first look."""
    connection.execute(
        insert(verdicts)
        .values(
            experiment_id=experiment_id,
            project_id=project_id,
            contract=waiting_contract(experiment_id),
            verdict="abstain",
            abstain_reason="power",
            decided=False,
            published_at=func.clock_timestamp(),
        )
        .on_conflict_do_nothing()
    )


def bind_waiting(
    connection: Connection, project_id: int, deploy: Row[Any], *, bound_at: datetime
) -> None:
    """Binds the experiments that wait for a deploy like this one."""
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
                func.starts_with(deploy.commit_sha, experiments.c.treatment_commit),
            ),
        )
        .order_by(experiments.c.registered_at, experiments.c.experiment_id)
    ).all()
    for experiment in waiting:
        named = experiment.request
        binding = _binding(
            connection,
            project_id,
            deploy,
            control_commit=named.get("control_commit"),
            flag=_flag_of(named),
            bound_at=bound_at,
            routes_seen=_affected_routes_seen(connection, project_id, deploy, named.get("routes")),
        )
        # A deploy that carries nothing new is not the one that was waited for.
        if binding.change:
            request = Registration(
                value_per_conversion=named.get("value_per_conversion"),
                control_commit=named.get("control_commit"),
                treatment_flag=_flag_of(named),
                routes=named.get("routes"),
                guardrails=named.get("guardrails"),
            )
            _bind(
                connection,
                project_id,
                experiment.experiment_id,
                request,
                binding=binding,
                metric=experiment.target_metric,
            )


def _binding(
    connection: Connection,
    project_id: int,
    deploy: Row[Any],
    *,
    control_commit: str | None,
    flag: Flag | None,
    bound_at: datetime,
    routes_seen: frozenset[str],
) -> _Binding:
    if flag is not None:
        # One build, two behaviours: what differs is the flag alone.
        return _Binding(
            deploy=deploy,
            control_commit=deploy.commit_sha,
            change=[flag.change],
            bound_at=bound_at,
            routes_seen=routes_seen,
            flag=flag,
        )
    environment, treatment = deploy.environment, deploy.commit_sha
    history = read_history(connection, project_id, environment, known_at=bound_at)
    if control_commit is None:
        control = standing_commit(
            connection, project_id, environment, before=deploy.deployed_at, besides=treatment
        )
    else:
        control = history.resolve(control_commit) or control_commit
        remember_base(
            connection, project_id, environment, treatment, base=control, recorded_at=bound_at
        )
        history = read_history(connection, project_id, environment, known_at=bound_at)
    carried = history.lineage(treatment)
    lacking = frozenset[str]() if control is None else history.lineage(control)
    return _Binding(
        deploy=deploy,
        control_commit=control,
        change=sorted(carried - lacking),
        bound_at=bound_at,
        routes_seen=routes_seen,
    )


def _bind(
    connection: Connection,
    project_id: int,
    experiment_id: str,
    request: Registration,
    *,
    binding: _Binding,
    metric: str,
) -> None:
    """Freezes what the experiment's verdict reads."""
    settings = read_settings(connection, project_id)
    deploy = binding.deploy
    attempt = 1 + _decided_attempts(connection, project_id, binding.change, metric)
    starts_at = binding.bound_at if attempt > 1 else _start(connection, project_id, binding)
    routes, because = _routes(request.routes, binding.routes_seen)
    guardrails = settings.guardrails if request.guardrails is None else request.guardrails
    policy = frozen_policy(
        settings,
        target=metric,
        guardrails=guardrails,
        environment=deploy.environment,
        routes=routes,
        routes_because=because,
        graph_id=deploy.graph_id,
        value_per_conversion=request.value_per_conversion,
        attempt=attempt,
        flag=binding.flag,
        caps=lambda definition: _cap(
            connection, project_id, deploy.environment, definition, before=starts_at
        ),
    )
    connection.execute(
        update(experiments)
        .where(experiments.c.experiment_id == experiment_id)
        .values(
            environment=deploy.environment,
            treatment_commit=deploy.commit_sha,
            control_commit=binding.control_commit,
            change=binding.change,
            deploy_id=deploy.deploy_id,
            bound_at=binding.bound_at,
            starts_at=starts_at,
            attempt=attempt,
            policy=policy,
        )
    )


def _flag_of(named: Mapping[str, Any]) -> Flag | None:
    return Flag(**named["treatment_flag"]) if "treatment_flag" in named else None


_FIRST_FLAGGED = text("""
SELECT min(occurred_at) FROM runtime_events
WHERE project_id = :project_id AND environment = :environment
  AND occurred_at >= :since AND received_at >= :since AND flags ->> :name = :treatment
""")


def _start(connection: Connection, project_id: int, binding: _Binding) -> datetime:
    """Returns when exposure begins: with the deploy; of a flag, when it was first on since."""
    deploy, flag = binding.deploy, binding.flag
    if flag is None:
        return deploy.deployed_at
    first = connection.execute(
        _FIRST_FLAGGED,
        {
            "project_id": project_id,
            "environment": deploy.environment,
            "since": deploy.deployed_at,
            "name": flag.name,
            "treatment": flag.treatment,
        },
    ).scalar_one_or_none()
    return first or binding.bound_at


_CAP = text("""
SELECT count(*) AS values, percentile_disc(0.99) WITHIN GROUP (ORDER BY value) AS cap
FROM (
    SELECT value FROM runtime_events
    WHERE project_id = :project_id AND environment = :environment AND event = ANY(:sources)
      AND received_at >= :since AND received_at < :before AND value <> 0
    UNION ALL
    SELECT amount_value FROM revenue_events
    WHERE project_id = :project_id AND event = ANY(:sources) AND amount_currency = :currency
      AND received_at >= :since AND received_at < :before AND amount_value <> 0
) AS earlier
""")


def _cap(
    connection: Connection,
    project_id: int,
    environment: str,
    definition: Mapping[str, Any],
    *,
    before: datetime,
) -> float | None:
    """Returns the 99th percentile of a metric's values before the start, None of too few."""
    row = connection.execute(
        _CAP,
        {
            "project_id": project_id,
            "environment": environment,
            "sources": definition["sources"],
            "currency": definition["currency"],
            "since": before - _CAP_FROM,
            "before": before,
        },
    ).one()
    return float(row.cap) if row.values >= _CAP_VALUES else None


def _decided_attempts(
    connection: Connection, project_id: int, change: Sequence[str], metric: str
) -> int:
    return connection.execute(
        select(func.count())
        .select_from(experiments)
        .where(
            experiments.c.project_id == project_id,
            experiments.c.change == list(change),
            experiments.c.target_metric == metric,
        )
    ).scalar_one()


_ROUTES_SEEN = text("""
SELECT DISTINCT route FROM runtime_events
WHERE project_id = :project_id AND environment = :environment AND route IS NOT NULL
  AND received_at >= :since
""")


def _affected_routes_seen(
    connection: Connection, project_id: int, deploy: Row[Any], named: Sequence[str] | None
) -> frozenset[str]:
    """Returns the deploy's affected routes that events have named of late."""
    if named is not None or not deploy.affected_routes or deploy.graph_id is None:
        return frozenset()
    table = RouteTable(read_graph(connection, project_id, deploy.graph_id).patterns)
    routes = connection.execute(
        _ROUTES_SEEN,
        {
            "project_id": project_id,
            "environment": deploy.environment,
            "since": deploy.deployed_at - _ROUTES_SEEN_WITHIN,
        },
    ).scalars()
    seen = {table.match(route) for route in routes}
    return frozenset(route for route in deploy.affected_routes if canonical_route(route) in seen)


def _routes(named: Sequence[str] | None, affected: frozenset[str]) -> tuple[list[str] | None, str]:
    """Returns the routes that expose a unit, None for all, and why these."""
    if named is not None:
        return list(named), "named"
    return (sorted(affected), "affected") if affected else (None, "all")


def close(connection: Connection, project_id: int, experiment_id: str) -> None:
    """Ends an experiment by hand: it is decided `abstain` at its last look, never a verdict.

    Raises:
        Missing: The project has no such experiment.
    """
    row = connection.execute(
        select(experiments.c.closed_at)
        .where(experiments.c.project_id == project_id, experiments.c.experiment_id == experiment_id)
        .with_for_update()
    ).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    connection.execute(
        update(experiments)
        .where(experiments.c.experiment_id == experiment_id, experiments.c.closed_at.is_(None))
        .values(closed_at=binding_time(connection))
    )
