"""Experiments: a change registered, met again while it is open, and closed."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from domain.contract import waiting_contract
from domain.lineage.flag import Flag
from domain.metric import SLOW, Metric, metric_definition
from domain.policy import Policy
from domain.registration import PORTFOLIO, Registration
from storage.experiments.binding import Scope, bound_columns, scope_of
from storage.experiments.commit_ids import commit_meant, commit_named, commits_meant, whole_id
from storage.experiments.hold_backs import later_build, nothing_to_judge
from storage.experiments.policy import SINGLE, watched_guardrails
from storage.postgres.refusal import Conflict, Invalid, Locked, Missing
from storage.schema.clock import receipt_time, store_time
from storage.schema.policy_columns import HAS_FLAG, IS_PORTFOLIO
from storage.schema.tables import experiments, verdicts
from storage.tenants.audit_trail import PROGRAM, Actor, record_action
from storage.tenants.default_metric import settled_metric
from storage.tenants.projects import lock_project
from storage.tenants.settings import Lockable, Settings, parse_settings, stored_settings


@dataclass(frozen=True, kw_only=True)
class Registered:
    """The experiment of a registration; `created`, and bound, unless it was registered before."""

    experiment_id: str
    created: bool
    bound_at: datetime | None = None


def register(connection: Connection, project_id: int, request: Registration) -> Registered:
    """Registers a change as an experiment, or returns its open experiment of the same metric.

    Raises:
        Invalid: The deploy is unknown, contradicts the treatment, or carries no change.
        Conflict: The open experiment has other routes, guardrails or control; or the id of a commit
            begins several; or the target has several thresholds.
    """
    stored = lock_project(connection, project_id)
    if request.treatment_flag is not None and request.treatment_commit is not None:
        raise Invalid(
            "two_treatments",
            "a change is named by a commit or by a flag, not by both",
            pointer="/treatment_flag",
        )
    settings = parse_settings(stored)
    require_unlocked(settings, _chosen(settings, request))
    require_control(settings, request.treatment_flag, of="/treatment_flag")
    metric = request.target_metric or settled_metric(connection, project_id, settings)
    _require_target(settings, metric, request.value_per_conversion)
    deploy = _deploy(connection, project_id, request)
    if deploy is None:
        return _register_waiting(connection, project_id, request, settings=settings, metric=metric)
    scope = scope_of(connection, project_id, deploy, request, bound_at=receipt_time(connection))
    known = _open_experiment(
        connection, project_id, scope, metric=metric, is_portfolio=request.is_portfolio
    )
    if known is not None:
        _require_same(known, request, settings=settings, control_commit=scope.control_commit)
        return _registered_again(connection, known, request)
    if request.control_commit is None and request.treatment_flag is None:
        _require_no_hold_back(connection, project_id, scope)
    if not scope.change:
        raise Invalid(
            "no_change",
            "the treatment carries no change that the control lacks: nothing can be measured",
            pointer="/control_commit" if request.control_commit else "/treatment_commit",
        )
    if request.target_metric is None and metric != settings.default_metric:
        # It may have been settled just now.
        stored = stored_settings(connection, project_id)
    bound = bound_columns(connection, project_id, request, stored, scope, metric=metric)
    asked = {"registered_at": scope.bound_at, "target_metric": metric}
    return _insert(connection, project_id, request, **asked, **bound)


def register_anew(
    connection: Connection, project_id: int, experiment_id: str, *, actor: str
) -> Registered:
    """Registers the change of an experiment again, as it was registered: the next attempt at it.

    Raises:
        Missing: The project has no such experiment.
        Conflict: The experiment is open: it goes on.
        Invalid: Its change is no change any more.
    """
    row = connection.execute(
        select(experiments, verdicts.c.decided)
        .join_from(experiments, verdicts)
        .where(experiments.c.project_id == project_id, experiments.c.experiment_id == experiment_id)
    ).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    if not row.decided:
        raise Conflict("experiment_open", "the experiment is open: it goes on, so close it first")
    before = Registration.of_stored(row.request)
    return register(
        connection,
        project_id,
        replace(
            before,
            # A flag is tested in the build that most users have by now.
            treatment_commit=None
            if before.treatment_flag is not None
            else whole_id(connection, project_id, row.treatment_commit),
            target_metric=row.target_metric,
            actor=actor,
            environment=row.environment,
        ),
    )


def _deploy(connection: Connection, project_id: int, request: Registration) -> Row[Any] | None:
    """Returns the deploy that a registration names or means."""
    place = {"project_id": project_id, "environment": request.environment}
    if request.deploy_id is not None:
        asked = {**place, "deploy_id": request.deploy_id}
        row = connection.execute(_NAMED_DEPLOY, asked).one_or_none()
        if row is None:
            raise Invalid("unknown_deploy", "this project has no such deploy", pointer="/deploy_id")
        named = request.treatment_commit
        if named is not None and row.commit_sha not in (
            known.commit for known in commits_meant(connection, project_id, named)
        ):
            raise Invalid(
                "commit_contradicts_deploy",
                f"the deploy is of commit {whole_id(connection, project_id, row.commit_sha)}",
                pointer="/treatment_commit",
            )
        return row
    if request.treatment_commit is None:
        return connection.execute(_NEWEST_DEPLOY, place).one_or_none()
    commit = commit_meant(connection, project_id, request.treatment_commit)
    return connection.execute(_LAST_STEP, {**place, "commit": commit}).one_or_none()


# A statement of this text costs a request a third of what it costs built of its parts.
_DEPLOYS = "SELECT * FROM deploys WHERE project_id = :project_id AND withdrawn_at IS NULL"
_NAMED_DEPLOY = text(f"{_DEPLOYS} AND deploy_id = :deploy_id")
_NEWEST_DEPLOY = text(f"""
{_DEPLOYS} AND environment = :environment ORDER BY deployed_at DESC, recorded_at DESC LIMIT 1
""")
# The last step of its ramp, whether or not it was withdrawn or promoted since; of a commit that
# never was a canary the first deploy. Exposure begins with the first step of that ramp.
_LAST_STEP = text(f"""
{_DEPLOYS} AND environment = :environment AND commit_sha = :commit
ORDER BY coalesce(allocation > 0 AND allocation < 1, false) DESC,
    CASE WHEN allocation > 0 AND allocation < 1 THEN deployed_at END DESC,
    CASE WHEN allocation > 0 AND allocation < 1 THEN recorded_at END DESC,
    deployed_at, recorded_at
LIMIT 1
""")


def _register_waiting(
    connection: Connection,
    project_id: int,
    request: Registration,
    *,
    settings: Settings,
    metric: str,
) -> Registered:
    """Registers for a deploy that is still to come."""
    awaited = request.treatment_commit
    if awaited is not None:
        awaited = commit_named(connection, project_id, awaited)
        request = replace(request, treatment_commit=awaited)
    same = and_(
        experiments.c.project_id == project_id,
        experiments.c.bound_at.is_(None),
        experiments.c.closed_at.is_(None),
        experiments.c.target_metric == metric,
        experiments.c.environment == request.environment,
        experiments.c.treatment_commit.is_not_distinct_from(awaited),
        _is_flag(request.treatment_flag),
        verdicts.c.decided.is_(False),
    )
    known = connection.execute(
        select(experiments)
        .join_from(experiments, verdicts)
        .where(same)
        .order_by(experiments.c.registered_at)
        .limit(1)
    ).one_or_none()
    if known is not None:
        _require_same(known, request, settings=settings, control_commit=request.control_commit)
        return _registered_again(connection, known, request)
    return _insert(
        connection,
        project_id,
        request,
        target_metric=metric,
        environment=request.environment,
        registered_at=store_time(connection),
        treatment_commit=request.treatment_commit,
    )


def _require_no_hold_back(connection: Connection, project_id: int, scope: Scope) -> None:
    """Refuses a build that a share of the units keeps, though users have all its changes."""
    deploy, commit = scope.deploy, scope.deploy.commit_sha
    build = later_build(
        connection,
        project_id,
        deploy.environment,
        commit,
        deployed_at=deploy.deployed_at,
        serving=scope.serving,
    )
    if build is not None:
        raise Invalid(
            "no_change",
            f"{nothing_to_judge(commit, build)}: name the canary's commit",
            pointer="/treatment_commit",
        )


def _chosen(settings: Settings, request: Registration) -> Mapping[Lockable, bool]:
    """Returns whether a registration chooses each of the members that a project may lock."""
    metric = request.target_metric
    return {
        "target_metric": metric is not None and metric != settings.default_metric,
        # A registration that names some adds them; the empty list asks for none at all.
        "guardrails": request.guardrails is not None
        and not request.guardrails
        and bool(settings.guardrails),
        "routes": request.routes is not None,
        "control_commit": request.control_commit is not None,
        "value": request.value_per_conversion is not None,
    }


def require_unlocked(settings: Settings, chosen: Mapping[Lockable, bool]) -> None:
    """Refuses a request that chooses a member which the project's settings lock.

    Raises:
        Locked: It does.
    """
    for member in settings.locked:
        if chosen.get(member):
            raise Locked(
                "locked",
                f"the project's setting `locked` keeps {member} for the project: leave it out, or"
                " change the setting",
            )


def require_control(settings: Settings, flag: Flag | None, *, of: str) -> None:
    """Refuses a flag without a value for control where the service hands out both, or checks them.

    Raises:
        Invalid: The registration has to name it.
    """
    if flag is None or flag.control is not None:
        return
    if settings.ofrep != "off" or settings.verified_draws:
        raise Invalid(
            "control_unnamed",
            "name the value that control has: the project's settings `ofrep` and `verified_draws`"
            " hand out a flag's values, or check them, so both must be known",
            pointer=f"{of}/control",
        )


def _is_flag(flag: Flag | None) -> ColumnElement[bool]:
    """Returns the SQL of whether an experiment tests a flag's value and named control.

    A registration without `control` means whichever is open.
    """
    request = experiments.c.request
    if flag is None:
        return request["treatment_flag"].is_(None)
    return request.contains({"treatment_flag": _named_flag(flag)})


def _require_target(settings: Settings, name: str, value: float | None) -> None:
    """Refuses several thresholds, a value of what has none, or a loss by what is better.

    The events of a ratio are over others, not a unit's.
    """
    if len(settings.metrics.get(name, Metric()).thresholds) > 1:
        raise Conflict("no_threshold", f"{name}: {SINGLE}")
    if value is None:
        return
    definition = metric_definition(name, settings.metrics)
    pointer = "/target_metric/value_per_conversion"
    if definition.kind == "ratio":
        raise Invalid(
            "ratio_has_no_value",
            "a ratio counts events over other events, so none of them has a value: leave it out",
            pointer=pointer,
        )
    if value < 0 and definition.better == "higher":
        raise Invalid(
            "negative_value",
            f"of {name} more is better, so that no event of it costs: name what one brings, from 0"
            " on; a metric of which less is better may have a value below 0",
            pointer=pointer,
        )


def _require_same(
    known: Row[Any], request: Registration, *, settings: Settings, control_commit: str | None
) -> None:
    """Refuses another experiment under the name of an open experiment."""
    chosen: dict[str, object] = {}
    held = Policy.of(known.policy) if known.policy else Registration.of_stored(known.request)
    # The binding adds the duration of requests by itself.
    unnamed = {known.target_metric, SLOW} - {*(request.guardrails or ())}
    if request.routes is not None:
        chosen["routes"] = sorted(request.routes)
    if request.guardrails is not None:
        watched = {*watched_guardrails(settings, request.guardrails)} - unnamed
        chosen["guardrails"] = sorted(watched)
    stored: dict[str, object] = {
        "routes": sorted(held.routes or ()),
        "guardrails": sorted({*_guardrails_of(held, settings)} - unnamed),
    }
    if request.control_commit is not None:
        chosen["control_commit"] = control_commit
        stored["control_commit"] = known.control_commit
    if request.value_per_conversion is not None:
        chosen["value_per_conversion"] = request.value_per_conversion
        stored["value_per_conversion"] = held.value_per_conversion
    for member, value in chosen.items():
        if stored[member] != value:
            raise Conflict(
                "experiment_open",
                f"experiment {known.experiment_id} of this change and metric is open with other"
                f" {member}; close it first, or leave {member} out",
            )


def _guardrails_of(held: Policy | Registration, settings: Settings) -> Sequence[str]:
    if isinstance(held, Registration):
        return watched_guardrails(settings, held.guardrails)
    return [each.of or each.name for each in held.guardrails]


def _registered_again(connection: Connection, known: Row[Any], request: Registration) -> Registered:
    """Adds to an experiment who asks for it, and members of its metadata, where none were said.

    No verdict reads them, apart from the mark of a portfolio, which stays as it was registered.
    """
    said, own = known.request, known.request.get("metadata", {})
    metadata = {
        name: value for name, value in (request.metadata or {}).items() if name != PORTFOLIO
    }
    more = {"actor": said.get("actor") or request.actor, "metadata": metadata | own}
    stored = said | {name: value for name, value in more.items() if value}
    if stored != said:
        this = experiments.c.experiment_id == known.experiment_id
        connection.execute(update(experiments).where(this).values(request=stored))
    return Registered(experiment_id=known.experiment_id, created=False)


def _open_experiment(
    connection: Connection, project_id: int, scope: Scope, *, metric: str, is_portfolio: bool
) -> Row[Any] | None:
    """Returns the open experiment of the same change, or of the same commit.

    The control of a commit was frozen at its first binding: later deploys make no other experiment
    of it.
    """
    flag, commit = scope.flag, scope.deploy.commit_sha
    asked = {
        "project_id": project_id,
        "environment": scope.deploy.environment,
        "metric": metric,
        "change": scope.change,
        "flag": None if flag is None else json.dumps({"treatment_flag": _named_flag(flag)}),
        "commit": commit if flag is None else None,
        "is_portfolio": is_portfolio,
    }
    return connection.execute(_SAME, asked).one_or_none()


def _named_flag(flag: Flag) -> dict[str, str]:
    """Returns the members of a flag that a registration names: without `control` any has it."""
    members = {"name": flag.name, "treatment": flag.treatment, "control": flag.control}
    return {name: value for name, value in members.items() if value is not None}


_SAME = text(f"""
SELECT x.* FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment AND x.target_metric = :metric
  AND x.bound_at IS NOT NULL AND x.closed_at IS NULL AND NOT v.decided
  AND (x.change = CAST(:change AS text[]) AND CASE WHEN CAST(:flag AS jsonb) IS NULL
          THEN NOT ({HAS_FLAG}) ELSE x.request @> CAST(:flag AS jsonb) END
      OR x.treatment_commit = :commit AND x.control_commit IS DISTINCT FROM x.treatment_commit
      AND {IS_PORTFOLIO} = :is_portfolio)
-- This very commit's goes before that of a commit that the change was rebased from.
ORDER BY (x.treatment_commit = :commit) DESC, x.bound_at
LIMIT 1
""")


def _insert(
    connection: Connection,
    project_id: int,
    request: Registration,
    **columns: Any,  # noqa: ANN401 - of the table
) -> Registered:
    experiment_id = f"exp_{secrets.token_hex(10)}"
    inserted = {
        **dict.fromkeys(_BOUND),
        **columns,
        "experiment_id": experiment_id,
        "project_id": project_id,
        "request": json.dumps(request.stored),
        "binding": json.dumps(columns["binding"]) if "binding" in columns else None,
        "contract": json.dumps(msgspec.to_builtins(waiting_contract(experiment_id))),
    }
    connection.execute(_INSERT, inserted)
    return Registered(experiment_id=experiment_id, created=True, bound_at=columns.get("bound_at"))


_BOUND = ("treatment_commit", "control_commit", "change", "deploy_id", "bound_at", "attempt")
_INSERT = text("""
WITH registered AS (
    INSERT INTO experiments (experiment_id, project_id, registered_at, request, target_metric,
        environment, treatment_commit, control_commit, change, deploy_id, bound_at, attempt,
        binding)
    VALUES (:experiment_id, :project_id, :registered_at, CAST(:request AS jsonb), :target_metric,
        :environment, :treatment_commit, :control_commit, :change, :deploy_id, :bound_at,
        coalesce(:attempt, 1), CAST(:binding AS jsonb))
    RETURNING experiment_id, project_id
)
INSERT INTO verdicts
    (experiment_id, project_id, contract, verdict, abstain_reason, decided, published_at)
SELECT experiment_id, project_id, CAST(:contract AS json), 'abstain', 'power', false,
    clock_timestamp()
FROM registered
""")


def publish_waiting(connection: Connection, experiment_id: str, project_id: int) -> None:
    """Gives an experiment the verdict that it has before its first look."""
    connection.execute(
        insert(verdicts)
        .values(
            experiment_id=experiment_id,
            project_id=project_id,
            contract=msgspec.to_builtins(waiting_contract(experiment_id)),
            verdict="abstain",
            abstain_reason="power",
            decided=False,
            published_at=func.clock_timestamp(),
        )
        .on_conflict_do_nothing()
    )


def close(
    connection: Connection, project_id: int, experiment_id: str, *, by: Actor = PROGRAM
) -> None:
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
    if row.closed_at is not None:
        return
    connection.execute(
        update(experiments)
        .where(experiments.c.project_id == project_id, experiments.c.experiment_id == experiment_id)
        .values(closed_at=receipt_time(connection))
    )
    record_action(connection, project_id, "experiment_closed", by=by, subject=experiment_id)


def keep_note(
    connection: Connection, project_id: int, experiment_id: str, note: str | None
) -> None:
    """Keeps the team's note on an experiment; None removes it. No verdict reads it.

    Raises:
        Missing: The project has no such experiment.
    """
    kept = connection.execute(
        update(experiments)
        .where(experiments.c.project_id == project_id, experiments.c.experiment_id == experiment_id)
        .values(note=note)
        .returning(experiments.c.experiment_id)
    ).one_or_none()
    if kept is None:
        raise Missing("unknown_experiment", "there is no such experiment")
