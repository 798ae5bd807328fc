"""The binding: an experiment meets its deploy, and its facts are kept for the freeze.

It reads no event: so a request that binds is answered in milliseconds, and holds nobody up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import msgspec
from sqlalchemy import Connection, or_, select, text, update

from domain.lineage.serving import Serving
from domain.lineage.takeover import is_taken_over
from domain.registration import Registration
from storage.experiments.attempts import Past, read_past
from storage.experiments.commit_ids import commit_meant, remember_new_id
from storage.experiments.deploy_record import StoredDeploy
from storage.experiments.histories import remember_base
from storage.experiments.readings import HISTORY_DAYS
from storage.experiments.serving import AHEAD, later_build, read_serving
from storage.postgres.refusal import Conflict
from storage.schema.tables import experiments, verdicts
from storage.tenants.settings import Settings, frozen_settings, parse_settings, stored_settings


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The scope of an experiment: its deploy, its control and the change between them.

    Attributes:
        began_at: When its declaration began; the deploy of a flag, which is on later.
        serving: The builds of its environment as known then; None for a flag.
        later_build: The build that users have instead, where nobody named a control and the
            treatment is a hold-back.
        base: The base that its treatment gets by it; `is_assumed` where nobody named a control.
        is_new: Whether nobody named its control before.
    """

    deploy: StoredDeploy
    request: Registration
    settings: Settings
    metric: str
    control_commit: str | None
    change: list[str]
    known_at: datetime
    began_at: datetime
    past: Past
    serving: Serving | None = None
    later_build: str | None = None
    base: str | None = None
    is_assumed: bool = False
    is_new: bool = False


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, deploys and experiments that a binding knew, which change afterwards.

    Attributes:
        is_handed_out: Whether OFREP gives the arms of its flag: control alone until the freeze.
        earlier_attempts: The newest of the experiments that it tries again.
        held_back_since: Of a portfolio, since when a share of the hold-back is declared.
        history_until: Up to when events of its environment came by import or replay.
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
    connection: Connection, project_id: int, deploy: StoredDeploy, *, bound_at: datetime
) -> dict[str, str | None]:
    """Binds the waiting experiments in the order of registration; returns each with its control."""
    bound: dict[str, str | None] = {}
    stored = stored_settings(connection, project_id)
    settings = parse_settings(stored)
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
        request, metric = Registration.of_stored(experiment.request), experiment.target_metric
        asked = (deploy, request, settings)
        try:
            scope = scope_of(connection, *asked, metric=metric, known_at=bound_at)
        except Conflict:
            # Its control's id begins several commits by now: it waits, and the deploy is recorded.
            continue
        remember_control(connection, project_id, scope, recorded_at=bound_at)
        # A deploy that carries nothing new is not the awaited deploy.
        if scope.change:
            columns = bound_columns(connection, scope, chose_guardrails="guardrails" in stored)
            connection.execute(
                update(experiments)
                .where(
                    experiments.c.project_id == project_id,
                    experiments.c.experiment_id == experiment.experiment_id,
                )
                .values(bound_at=bound_at, **columns)
            )
            bound[experiment.experiment_id] = scope.control_commit
    return bound


def scope_of(
    connection: Connection,
    deploy: StoredDeploy,
    request: Registration,
    settings: Settings,
    *,
    metric: str,
    known_at: datetime,
) -> Scope:
    """Returns the scope of an experiment on this deploy, as known at the binding.

    A control that is named gives the treatment the base that it may lack; so does, until a post
    names a base, the build of users beside it. `remember_control` stores it.

    Raises:
        Conflict: The id of its control begins several commits.
    """
    asked = partial(Scope, deploy=deploy, request=request, settings=settings, metric=metric)
    read = partial(read_past, connection, deploy, request, settings, metric=metric)
    if request.treatment_flag is not None:
        # A single build, two behaviours: they differ by the flag alone.
        change = [request.treatment_flag.change]
        return asked(
            control_commit=deploy.commit_sha,
            change=change,
            known_at=known_at,
            began_at=deploy.deployed_at,
            past=read(change=change, bound_at=known_at),
        )
    treatment, began_at = deploy.commit_sha, deploy.deployed_at
    control_commit = request.control_commit
    place, step = (deploy.project_id, deploy.environment), (treatment, began_at, deploy.recorded_at)
    serving = read_serving(connection, *place, at=known_at, until=max(known_at + AHEAD, began_at))
    history, compared, is_new = serving.history, serving, False
    if deploy.allocation is not None and 0 < deploy.allocation < 1:
        began_at = serving.declared_since(*step)
    if control_commit is None:
        known = history.base
        if not serving.is_last_step(*step) or is_taken_over(serving, treatment):
            # Of a canary that was promoted or withdrawn before it was registered, as in history
            # that is replayed, the builds of when its step began.
            compared = read_serving(connection, *place, at=known_at, until=deploy.deployed_at)
        control = compared.control_of(treatment)
    else:
        known, meant = history.named_base, commit_meant(connection, place[0], control_commit)
        control, is_new = meant or control_commit, meant is None
    base, is_assumed = control if known(treatment) is None else None, control_commit is None
    if base is not None:
        history = history.with_base(treatment, base, assumed=is_assumed)
        serving = serving.under(history)
    lacking = frozenset[str]() if control is None else history.lineage(control)
    change = sorted(history.lineage(treatment) - lacking)
    at, later = deploy.deployed_at, None
    if control_commit is None:
        later = later_build(connection, *place, treatment, deployed_at=at, serving=serving)
    return asked(
        control_commit=control,
        change=change,
        known_at=known_at,
        began_at=began_at,
        past=read(change=change, bound_at=known_at),
        serving=serving,
        later_build=later,
        base=base,
        is_assumed=is_assumed,
        is_new=is_new,
    )


def remember_control(
    connection: Connection, project_id: int, scope: Scope, *, recorded_at: datetime
) -> None:
    """Stores the id of a control, and a base, which a binding makes known of commits."""
    control, deploy = scope.control_commit, scope.deploy
    if control is None or scope.serving is None:
        return
    if scope.is_new:
        remember_new_id(connection, project_id, control, recorded_at=recorded_at)
    if scope.base is not None:
        place = (project_id, deploy.environment, deploy.commit_sha)
        assumed, base = scope.is_assumed, scope.base
        remember_base(connection, *place, base=base, assumed=assumed, recorded_at=recorded_at)


def bound_columns(
    connection: Connection, scope: Scope, *, chose_guardrails: bool
) -> dict[str, object]:
    """Returns the columns of a bound experiment, but for the time of its binding."""
    deploy, request, settings, serving = scope.deploy, scope.request, scope.settings, scope.serving
    past, flag = scope.past, request.treatment_flag
    binding = Binding(
        settings=settings,
        chose_guardrails=chose_guardrails,
        unseen_guardrails=request.unseen_guardrails,
        began_at=scope.began_at,
        is_handed_out=settings.ofrep != "off" and flag is not None and flag.control is not None,
        attempt=1 + past.attempts,
        earlier_attempts=past.newest,
        held_back_since=serving.held_back_since(scope.control_commit or "")
        if serving is not None and request.is_portfolio
        else None,
        history_until=past.history_until,
        is_repeated=past.is_repeated,
        served_before=settings.unit != "session" and _was_served(connection, scope),
    )
    stored = msgspec.to_builtins(binding)
    # Others hold addresses and secrets.
    stored["settings"] = {name: stored["settings"][name] for name in _FROZEN}
    return {
        "environment": deploy.environment,
        "treatment_commit": deploy.commit_sha,
        "control_commit": scope.control_commit,
        "change": scope.change,
        "deploy_id": deploy.deploy_id,
        "attempt": binding.attempt,
        "binding": stored,
    }


_FROZEN = frozen_settings("whole", "named", "shown")


_DEPLOYED_BEFORE = text("""
SELECT DISTINCT commit_sha FROM deploys
WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
  AND deployed_at >= :since AND deployed_at < :before
""")


def _was_served(connection: Connection, scope: Scope) -> bool:
    """Tells whether a build with the change was served in the days before; of a flag nobody can."""
    if scope.serving is None:
        return True
    before = min(scope.began_at, scope.known_at)
    place = {"project_id": scope.deploy.project_id, "environment": scope.deploy.environment}
    days = {**place, "since": before - HISTORY_DAYS, "before": before}
    return any(
        not scope.serving.history.lineage(commit).isdisjoint(scope.change)
        for commit in connection.execute(_DEPLOYED_BEFORE, days).scalars()
    )
