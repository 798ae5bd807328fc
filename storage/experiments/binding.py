"""The binding: an experiment meets its deploy, and its facts are kept for the freeze.

It reads no event: so a request that binds is answered in milliseconds, and holds nobody up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, exists, or_, select, text, update

from domain.lineage.flag import Flag
from domain.lineage.history import History
from domain.metric import Metric
from domain.registration import Registration
from storage.experiments.attempts import NAMED, earlier_attempts, provenance_of
from storage.experiments.commit_ids import commit_meant, remember_commit_ids
from storage.experiments.histories import read_history, remember_base
from storage.experiments.hold_backs import held_back_since
from storage.experiments.readings import HISTORY_DAYS
from storage.experiments.serving import AHEAD, read_serving
from storage.postgres.refusal import Conflict
from storage.schema.tables import experiments, verdicts
from storage.tenants.settings import Settings, frozen_settings, parse_settings, stored_settings


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The scope of an experiment: its deploy, its control and the change between them.

    Attributes:
        history: The lineages of its environment as known at the binding; None for a flag.
    """

    deploy: Row[Any]
    control_commit: str | None
    change: list[str]
    bound_at: datetime
    history: History | None = None
    flag: Flag | None = None


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, deploys and experiments that a binding knew, which change afterwards.

    Attributes:
        began_at: When its declaration began; the deploy of a flag, which is on later.
        is_handed_out: Whether OFREP gives the arms of its flag: control alone until the freeze.
        earlier_attempts: The newest of the experiments that it tries again.
        held_back_since: Of a portfolio, since when a share of the hold-back is declared.
        history_until: Up to when events of its environment came by import or replay.
        is_repeated: Whether there was an experiment on its change and metric before.
        served_before: Whether a build with the change was served in the days of its history.
    """

    settings: Settings
    chose_guardrails: bool
    unseen_guardrails: Sequence[str]
    began_at: datetime
    is_handed_out: bool = False
    attempt: int
    earlier_attempts: Sequence[str]
    held_back_since: datetime | None
    history_until: datetime | None
    is_repeated: bool
    served_before: bool


def bind_waiting(
    connection: Connection, project_id: int, deploy: Row[Any], *, bound_at: datetime
) -> None:
    """Binds the experiments that wait for such a deploy, in the order of their registrations."""
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
            scope = scope_of(connection, project_id, deploy, request, bound_at=bound_at)
            # A deploy that carries nothing new is not the awaited deploy.
            if scope.change:
                bind(
                    connection,
                    project_id,
                    experiment.experiment_id,
                    request,
                    scope=scope,
                    metric=experiment.target_metric,
                )
        except Conflict:
            # Its control's id begins several commits by now: it waits, and the deploy is recorded.
            continue


def scope_of(
    connection: Connection,
    project_id: int,
    deploy: Row[Any],
    request: Registration,
    *,
    bound_at: datetime,
) -> Scope:
    """Returns the scope of an experiment on this deploy, as known at the binding.

    A control that is named gives the treatment the base that it may lack; so does, until a post
    names a base, the build of users beside it.

    Raises:
        Conflict: Its id begins several commits.
    """
    control_commit, flag = request.control_commit, request.treatment_flag
    if flag is not None:
        # A single build, two behaviours: what differs is the flag alone.
        return Scope(
            deploy=deploy,
            control_commit=deploy.commit_sha,
            change=[flag.change],
            bound_at=bound_at,
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
    return Scope(
        deploy=deploy,
        control_commit=control,
        change=sorted(carried - lacking),
        bound_at=bound_at,
        history=history,
    )


def _place_of(project_id: int, deploy: Row[Any]) -> dict[str, Any]:
    """Returns the parameters of a statement for a deploy's place in its environment."""
    return {
        "project_id": project_id,
        "environment": deploy.environment,
        "commit": deploy.commit_sha,
        "deployed_at": deploy.deployed_at,
        "recorded_at": deploy.recorded_at,
        "deploy_id": deploy.deploy_id,
    }


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
    is_last = connection.execute(_IS_LAST_STEP, _place_of(project_id, deploy)).scalar_one()
    return max(bound_at + AHEAD, deploy.deployed_at) if is_last else deploy.deployed_at


def bind(
    connection: Connection,
    project_id: int,
    experiment_id: str,
    request: Registration,
    *,
    scope: Scope,
    metric: str,
) -> None:
    """Binds an experiment; the pipeline freezes its policy later, as of now."""
    deploy, bound_at = scope.deploy, scope.bound_at
    stored = stored_settings(connection, project_id)
    # Those alone that a policy freezes: others hold addresses and secrets.
    read = frozen_settings("whole", "named", "shown")
    settings = parse_settings({name: stored[name] for name in read & stored.keys()})
    earlier = earlier_attempts(
        connection,
        project_id,
        experiment_id,
        environment=deploy.environment,
        change=scope.change,
        provenance=None
        if scope.flag is not None
        else provenance_of(deploy.commit, default_branch=settings.default_branch),
        bound_at=bound_at,
    )
    place = {"project_id": project_id, "environment": deploy.environment}
    began_at = (
        deploy.deployed_at
        if scope.flag is not None
        else _first_step(connection, project_id, deploy)
    )
    binding = Binding(
        settings=settings,
        chose_guardrails="guardrails" in stored,
        unseen_guardrails=request.unseen_guardrails,
        began_at=began_at,
        is_handed_out=parse_settings(stored).ofrep != "off"
        and scope.flag is not None
        and scope.flag.control is not None,
        attempt=1 + len(earlier),
        earlier_attempts=earlier[-NAMED:],
        held_back_since=held_back_since(
            connection, project_id, deploy.environment, scope.control_commit, known_at=bound_at
        )
        if request.is_portfolio
        else None,
        history_until=connection.execute(_HISTORY_UNTIL, place).scalar_one(),
        is_repeated=_is_repeated(connection, project_id, scope.change, metric),
        served_before=settings.metrics.get(metric, Metric()).kind == "mean"
        and _was_served(connection, scope, place, before=min(began_at, bound_at)),
    )
    connection.execute(
        update(experiments)
        .where(experiments.c.project_id == project_id, experiments.c.experiment_id == experiment_id)
        .values(
            environment=deploy.environment,
            treatment_commit=deploy.commit_sha,
            control_commit=scope.control_commit,
            change=scope.change,
            deploy_id=deploy.deploy_id,
            bound_at=bound_at,
            attempt=binding.attempt,
            binding=msgspec.to_builtins(binding),
        )
    )


_HISTORY_UNTIL = text("""
SELECT max(newest_at) FROM histories WHERE project_id = :project_id AND environment = :environment
""")


_FIRST_STEP = text("""
-- A declaration goes on from step to step of a commit's ramp. It is broken by a share of 0, 1 or
-- none, and by another commit that takes over: deployed to everybody, or with no share declared.
WITH earlier AS (
    SELECT commit_sha = :commit AS own, allocation, deployed_at,
        row_number() OVER (ORDER BY deployed_at DESC, recorded_at DESC, deploy_id DESC) AS back
    FROM deploys
    WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
      AND (deployed_at, recorded_at, deploy_id) < (:deployed_at, :recorded_at, :deploy_id)
), broken AS (
    SELECT min(back) AS back FROM earlier
    WHERE CASE WHEN own THEN coalesce(allocation IN (0, 1), true)
        ELSE coalesce(allocation = 1, true) END
)
SELECT min(deployed_at) FROM earlier, broken
WHERE own AND (broken.back IS NULL OR earlier.back < broken.back)
""")


def _first_step(connection: Connection, project_id: int, deploy: Row[Any]) -> datetime:
    """Returns when the unbroken declaration began that a deploy belongs to."""
    if deploy.allocation is None or not 0 < deploy.allocation < 1:
        return deploy.deployed_at
    first = connection.execute(_FIRST_STEP, _place_of(project_id, deploy)).scalar_one()
    return first or deploy.deployed_at


def _is_repeated(
    connection: Connection, project_id: int, change: Sequence[str], metric: str
) -> bool:
    """Tells whether an experiment on this change and metric was there before: it is not open."""
    return connection.execute(
        select(
            exists().where(
                experiments.c.project_id == project_id,
                experiments.c.change == list(change),
                experiments.c.target_metric == metric,
                experiments.c.cannot_start.is_(None),
            )
        )
    ).scalar_one()


_DEPLOYED_BEFORE = text("""
SELECT DISTINCT commit_sha FROM deploys
WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
  AND deployed_at >= :since AND deployed_at < :before
""")


def _was_served(
    connection: Connection, scope: Scope, place: dict[str, Any], *, before: datetime
) -> bool:
    """Tells whether a build with the change was served in the days before; of a flag nobody can."""
    if scope.history is None:
        return True
    bounds = {**place, "since": before - HISTORY_DAYS, "before": before}
    return any(
        not scope.history.lineage(commit).isdisjoint(scope.change)
        for commit in connection.execute(_DEPLOYED_BEFORE, bounds).scalars()
    )
