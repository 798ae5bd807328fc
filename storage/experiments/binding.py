"""The binding: an experiment meets its deploy, and its facts are kept for the freeze.

It reads no event: so a request that binds is answered in milliseconds, and holds nobody up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, or_, select, text, update

from domain.lineage.flag import Flag
from domain.lineage.serving import Serving
from domain.metric import Metric
from domain.registration import Registration
from storage.experiments.attempts import earlier_attempts, provenance_of
from storage.experiments.commit_ids import commit_meant, remember_commit_ids
from storage.experiments.histories import read_history, remember_base
from storage.experiments.readings import HISTORY_DAYS
from storage.experiments.serving import AHEAD, read_serving
from storage.postgres.refusal import Conflict
from storage.schema.tables import experiments, verdicts
from storage.tenants.settings import Settings, frozen_settings, parse_settings, stored_settings


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The scope of an experiment: its deploy, its control and the change between them.

    Attributes:
        serving: The builds of its environment as known at the binding; None for a flag.
    """

    deploy: Row[Any]
    control_commit: str | None
    change: list[str]
    bound_at: datetime
    serving: Serving | None = None
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
    stored = stored_settings(connection, project_id)
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
                metric = experiment.target_metric
                bound = bound_columns(connection, project_id, request, stored, scope, metric=metric)
                connection.execute(
                    update(experiments)
                    .where(
                        experiments.c.project_id == project_id,
                        experiments.c.experiment_id == experiment.experiment_id,
                    )
                    .values(bound)
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
    until = max(bound_at + AHEAD, deploy.deployed_at)
    serving = read_serving(connection, project_id, environment, at=bound_at, until=until)
    known, history = serving.history.named_base, serving.history
    if control_commit is None:
        known = history.base
        control = _last_served(connection, project_id, deploy, serving, at=bound_at).control_of(
            treatment
        )
    else:
        control = commit_meant(connection, project_id, control_commit)
        if control is None:
            named = [control_commit]
            ids = remember_commit_ids(connection, project_id, named, recorded_at=bound_at)
            control = ids[control_commit]
    if control is not None and known(treatment) is None:
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
        serving = serving.under(history)
    carried = history.lineage(treatment)
    lacking = frozenset[str]() if control is None else history.lineage(control)
    return Scope(
        deploy=deploy,
        control_commit=control,
        change=sorted(carried - lacking),
        bound_at=bound_at,
        serving=serving,
    )


def _last_served(
    connection: Connection, project_id: int, deploy: Row[Any], serving: Serving, *, at: datetime
) -> Serving:
    """Returns the builds that a treatment is compared with: of now, while its step is its last.

    Of a canary that was promoted or withdrawn before it was registered, as in history that is
    replayed, those of when the step began.
    """
    if serving.is_last_step(deploy.commit_sha, deploy.deployed_at, deploy.recorded_at):
        return serving
    return read_serving(
        connection,
        project_id,
        deploy.environment,
        at=at,
        until=deploy.deployed_at,
        history=serving.history,
    )


def bound_columns(
    connection: Connection,
    project_id: int,
    request: Registration,
    stored: Mapping[str, Any],
    scope: Scope,
    *,
    metric: str,
) -> dict[str, Any]:
    """Returns the columns of a bound experiment; the pipeline freezes its policy, as of now.

    Args:
        stored: The project's choices of settings.
    """
    deploy, bound_at, serving = scope.deploy, scope.bound_at, scope.serving
    # Those alone that a policy freezes: others hold addresses and secrets.
    read = frozen_settings("whole", "named", "shown")
    settings = parse_settings({name: stored[name] for name in read & stored.keys()})
    attempts, newest = earlier_attempts(
        connection,
        project_id,
        environment=deploy.environment,
        change=scope.change,
        provenance=None
        if serving is None
        else provenance_of(deploy.commit, default_branch=settings.default_branch),
        bound_at=bound_at,
    )
    place = {"project_id": project_id, "environment": deploy.environment}
    same = {"change": scope.change, "metric": metric}
    past = connection.execute(_PAST, {**place, **same}).one()
    began_at = deploy.deployed_at
    if serving is not None and deploy.allocation is not None and 0 < deploy.allocation < 1:
        began_at = serving.declared_since(deploy.commit_sha, began_at, deploy.recorded_at)
    binding = Binding(
        settings=settings,
        chose_guardrails="guardrails" in stored,
        unseen_guardrails=request.unseen_guardrails,
        began_at=began_at,
        is_handed_out=stored.get("ofrep", _HANDED_OUT) != "off"
        and scope.flag is not None
        and scope.flag.control is not None,
        attempt=1 + attempts,
        earlier_attempts=newest,
        held_back_since=serving.held_back_since(scope.control_commit or "")
        if serving is not None and request.is_portfolio
        else None,
        history_until=past.history_until,
        is_repeated=past.is_repeated,
        served_before=settings.metrics.get(metric, Metric()).kind == "mean"
        and _was_served(connection, scope, place, before=min(began_at, bound_at)),
    )
    return {
        "environment": deploy.environment,
        "treatment_commit": deploy.commit_sha,
        "control_commit": scope.control_commit,
        "change": scope.change,
        "deploy_id": deploy.deploy_id,
        "bound_at": bound_at,
        "attempt": binding.attempt,
        "binding": msgspec.to_builtins(binding),
    }


_HANDED_OUT = Settings().ofrep
# Up to when history came, and whether an experiment on the change and metric has ended before: an
# open experiment is met again instead.
_PAST = text("""
SELECT (
    SELECT max(newest_at) FROM histories
    WHERE project_id = :project_id AND environment = :environment
) AS history_until, EXISTS (
    SELECT FROM experiments
    WHERE project_id = :project_id AND change = CAST(:change AS text[]) AND target_metric = :metric
      AND cannot_start IS NULL
) AS is_repeated
""")


_DEPLOYED_BEFORE = text("""
SELECT DISTINCT commit_sha FROM deploys
WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
  AND deployed_at >= :since AND deployed_at < :before
""")


def _was_served(
    connection: Connection, scope: Scope, place: dict[str, Any], *, before: datetime
) -> bool:
    """Tells whether a build with the change was served in the days before; of a flag nobody can."""
    if scope.serving is None:
        return True
    bounds = {**place, "since": before - HISTORY_DAYS, "before": before}
    return any(
        not scope.serving.history.lineage(commit).isdisjoint(scope.change)
        for commit in connection.execute(_DEPLOYED_BEFORE, bounds).scalars()
    )
