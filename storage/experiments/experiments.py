"""Experiments: a change registered, and met again while it is open."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
from msgspec import structs
from sqlalchemy import ColumnElement, Connection, and_, select, text, update

from domain.contract import waiting_contract
from domain.lineage.commit_id import SHORTEST, CommitId, CommitIds
from domain.lineage.flag import Flag
from domain.metric import SLOW
from domain.policy import Policy
from domain.registration import PORTFOLIO, Registration
from storage.experiments.attempts import OpenExperiment
from storage.experiments.binding import Scope, bound_columns, remember_control, scope_of
from storage.experiments.commit_ids import EVER, commit_named, commits_meant, the_commit, whole_id
from storage.experiments.deploy_record import StoredDeploy, read_deploys
from storage.experiments.deploys import Receipt
from storage.experiments.policy import watched_guardrails
from storage.experiments.rules import (
    chosen_members,
    require_control,
    require_target,
    require_unlocked,
)
from storage.experiments.serving import nothing_to_judge
from storage.postgres.refusal import Conflict, Invalid
from storage.postgres.rows import value_of
from storage.schema.clock import RECEIVED
from storage.schema.tables import experiments, verdicts
from storage.tenants.default_metric import settled_metric
from storage.tenants.settings import Settings, lock_project, parse_settings


@dataclass(frozen=True, kw_only=True)
class Registered:
    """The experiment of a registration; `created`, and bound, unless it was registered before."""

    experiment_id: str
    created: bool
    bound_at: datetime | None = None


def register(
    connection: Connection,
    project_id: int,
    request: Registration,
    *,
    receipt: Receipt | None = None,
) -> Registered:
    """Registers a change as an experiment, or returns its open experiment of the same metric.

    Args:
        receipt: Of a transaction that records more, and receives all of it at its end.

    Raises:
        Invalid: The deploy is unknown, contradicts the treatment, or carries no change.
        Conflict: The open experiment has other routes, guardrails or control; or the id of a commit
            begins several; or the target has several thresholds.
    """
    # A transaction that records more may go on with statements that read much.
    project = lock_project(connection, project_id, planned=receipt is None)
    if request.treatment_flag is not None and request.treatment_commit is not None:
        raise Invalid(
            "two_treatments",
            "a change is named by a commit or by a flag, not by both",
            pointer="/treatment_flag",
        )
    settings = parse_settings(project.settings)
    require_unlocked(settings, chosen_members(settings, request))
    require_control(settings, request.treatment_flag, of="/treatment_flag")
    metric = request.target_metric or settled_metric(connection, project_id, settings)
    require_target(settings, metric, request.value_per_conversion)
    deploy = _deploy(connection, project_id, request)
    if deploy is not None and _is_to_nobody(deploy, request):
        # The registration means the deploys that give the commit a share, which may come later.
        own, where = deploy.commit_sha, deploy.environment
        request = replace(request, deploy_id=None, treatment_commit=own, environment=where)
        deploy = _deploy(connection, project_id, request)
    if deploy is None:
        return _register_waiting(connection, project_id, request, settings=settings, metric=metric)
    if request.target_metric is None:
        # It may have been settled just now.
        settings = structs.replace(settings, default_metric=metric)
    known_at = project.at if receipt is None else receipt.at
    scope = scope_of(connection, deploy, request, settings, metric=metric, known_at=known_at)
    if (known := scope.past.known) is not None:
        _require_same(known, request, settings=settings, control_commit=scope.control_commit)
        return _registered_again(connection, known, request)
    _require_change(scope)
    if _is_to_nobody(deploy, request):
        return _register_waiting(connection, project_id, request, settings=settings, metric=metric)
    bound = bound_columns(connection, scope, chose_guardrails="guardrails" in project.settings)
    registered = _insert(
        connection, project_id, request, receipt=receipt, target_metric=metric, **bound
    )
    if registered.bound_at is not None:
        remember_control(connection, project_id, scope, recorded_at=registered.bound_at)
    return registered


def _is_to_nobody(deploy: StoredDeploy, request: Registration) -> bool:
    return deploy.allocation == 0 and request.treatment_flag is None


def _require_change(scope: Scope) -> None:
    """Refuses a treatment in which nothing is to be judged."""
    reason, of = None, "/control_commit" if scope.request.control_commit else "/treatment_commit"
    if scope.later_build is not None:
        judged = nothing_to_judge(scope.deploy.commit_sha, scope.later_build)
        reason, of = f"{judged}: name the canary's commit", "/treatment_commit"
    elif not scope.change:
        reason = "the treatment carries no change that the control lacks: nothing can be measured"
    if reason is not None:
        raise Invalid("no_change", reason, pointer=of)


def _deploy(connection: Connection, project_id: int, request: Registration) -> StoredDeploy | None:
    """Returns the deploy that a registration names or means."""
    place = {"project_id": project_id, "environment": request.environment}
    if request.deploy_id is not None:
        matching = read_deploys(connection, _NAMED_DEPLOY, **place, deploy_id=request.deploy_id)
        if not matching:
            raise Invalid("unknown_deploy", "this project has no such deploy", pointer="/deploy_id")
        (deploy,) = matching
        named = request.treatment_commit
        if named is not None and deploy.commit_sha not in (
            known.commit for known in commits_meant(connection, project_id, named)
        ):
            raise Invalid(
                "commit_contradicts_deploy",
                f"the deploy is of commit {whole_id(connection, project_id, deploy.commit_sha)}",
                pointer="/treatment_commit",
            )
        return deploy
    if request.treatment_commit is None:
        return next(iter(read_deploys(connection, _NEWEST_DEPLOY, **place)), None)
    written = request.treatment_commit
    rows = connection.execute(_LAST_STEPS, {**place, "written": written}).all()
    known = [CommitId(commit=row.known, id=row.id, recorded_at=row.known_at) for row in rows]
    commit = the_commit(written, CommitIds(known).meant(written, known_at=EVER))
    steps = (row for row in rows if row.known == commit and row.deploy_id is not None)
    return next((value_of(StoredDeploy, row) for row in steps), None)


# A statement of this text costs a request a third of what it costs built of its parts.
_DEPLOYS = "SELECT * FROM deploys WHERE project_id = :project_id AND withdrawn_at IS NULL"
_NAMED_DEPLOY = text(f"{_DEPLOYS} AND deploy_id = :deploy_id")
_NEWEST_DEPLOY = text(f"""
{_DEPLOYS} AND environment = :environment ORDER BY deployed_at DESC, recorded_at DESC LIMIT 1
""")
# Of each commit that an id may mean the last step of its ramp, whether or not it was withdrawn or
# promoted since; of a commit that never was a canary the first deploy to anybody. Exposure begins
# with the first step of that ramp.
_LAST_STEPS = text(f"""
SELECT d.*, ids.commit_sha AS known, ids.id, ids.recorded_at AS known_at
FROM commit_ids AS ids LEFT JOIN LATERAL (
    {_DEPLOYS} AND environment = :environment AND commit_sha = ids.commit_sha
    ORDER BY coalesce(allocation > 0 AND allocation < 1, false) DESC,
        CASE WHEN allocation > 0 AND allocation < 1 THEN deployed_at END DESC,
        CASE WHEN allocation > 0 AND allocation < 1 THEN recorded_at END DESC,
        allocation IS DISTINCT FROM 0 DESC, deployed_at, recorded_at
    LIMIT 1
) AS d ON true
WHERE ids.project_id = :project_id
  AND left(ids.id, {SHORTEST}) = left(CAST(:written AS text), {SHORTEST})
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
    row = connection.execute(
        select(experiments)
        .join_from(experiments, verdicts)
        .where(same)
        .order_by(experiments.c.registered_at)
        .limit(1)
    ).one_or_none()
    if row is not None:
        known = OpenExperiment.of(row)
        _require_same(known, request, settings=settings, control_commit=request.control_commit)
        return _registered_again(connection, known, request)
    return _insert(
        connection,
        project_id,
        request,
        target_metric=metric,
        environment=request.environment,
        treatment_commit=request.treatment_commit,
    )


def _is_flag(flag: Flag | None) -> ColumnElement[bool]:
    """Returns the SQL of whether an experiment tests a flag's value and named control.

    A registration without `control` means whichever is open.
    """
    request = experiments.c.request
    if flag is None:
        return request["treatment_flag"].is_(None)
    return request.contains({"treatment_flag": flag.named})


def _require_same(
    known: OpenExperiment, request: Registration, *, settings: Settings, control_commit: str | None
) -> None:
    """Refuses another experiment under the name of an open experiment."""
    chosen: dict[str, object] = {}
    held = known.policy or known.request
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


def _registered_again(
    connection: Connection, known: OpenExperiment, request: Registration
) -> Registered:
    """Adds to an experiment who asks for it, and members of its metadata, where none were said.

    No verdict reads them, apart from the mark of a portfolio, which stays as it was registered.
    """
    before = known.request
    asked = {name: value for name, value in (request.metadata or {}).items() if name != PORTFOLIO}
    metadata = {**asked, **(before.metadata or {})} or before.metadata
    after = replace(before, actor=before.actor or request.actor, metadata=metadata)
    if after != before:
        this = experiments.c.experiment_id == known.experiment_id
        connection.execute(update(experiments).where(this).values(request=after.stored))
    return Registered(experiment_id=known.experiment_id, created=False)


def _insert(
    connection: Connection,
    project_id: int,
    request: Registration,
    *,
    receipt: Receipt | None = None,
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
    if receipt is None:
        bound_at = connection.execute(_INSERT, inserted).scalar_one()
    else:
        bound_at = connection.execute(
            _INSERT_UNRECEIVED, {**inserted, "at": receipt.at}
        ).scalar_one()
        receipt.experiments.append(experiment_id)
        receipt.commits.add(columns["treatment_commit"])
        receipt.ids.add(columns["control_commit"])
    return Registered(experiment_id=experiment_id, created=True, bound_at=bound_at)


_BOUND = ("treatment_commit", "control_commit", "change", "deploy_id", "attempt")
_INSERT, _INSERT_UNRECEIVED = (
    text(f"""
WITH registered AS (
    INSERT INTO experiments (experiment_id, project_id, registered_at, request, target_metric,
        environment, treatment_commit, control_commit, change, deploy_id, bound_at, attempt,
        binding)
    SELECT :experiment_id, :project_id, at, CAST(:request AS jsonb), :target_metric,
        :environment, :treatment_commit, :control_commit, CAST(:change AS text[]), :deploy_id,
        CASE WHEN CAST(:deploy_id AS text) IS NOT NULL THEN at END,
        coalesce(CAST(:attempt AS int), 1),
        CAST(:binding AS jsonb)
    FROM {received}
    RETURNING experiment_id, project_id, bound_at
), published AS (
    INSERT INTO verdicts
        (experiment_id, project_id, contract, verdict, abstain_reason, decided, published_at)
    SELECT experiment_id, project_id, CAST(:contract AS json), 'abstain', 'power', false,
        clock_timestamp()
    FROM registered
)
SELECT bound_at FROM registered
""")
    for received in (RECEIVED, "(SELECT CAST(:at AS timestamptz) AS at) AS received")
)
