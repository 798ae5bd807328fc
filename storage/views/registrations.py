"""Registrations: an experiment as it is bound, and its needs before it can answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any

from sqlalchemy import Connection, text

from domain.lineage.control_state import BaseMove, ControlState
from domain.lineage.serving import MissingControl
from storage.experiments.control_states import control_states
from storage.experiments.deploys import ELSEWHERE
from storage.experiments.histories import joint_with
from storage.experiments.policy import first_look_at
from storage.postgres.refusal import Missing

# Two ids of forty digits by chance share about half of them; a slip of the finger leaves most.
_LIKENESS = 0.8
_RECENT_COMMITS = 500


@dataclass(frozen=True, kw_only=True)
class MissingDeploy:
    """The deploy that an experiment waits for.

    Attributes:
        commit: The commit that it must be of; None for the next deploy.
        elsewhere: The environments in which that commit is deployed.
        nearest: A recent commit of the environment that `commit` looks like: a typing error.
    """

    commit: str | None
    elsewhere: Sequence[str]
    nearest: str | None


@dataclass(frozen=True, kw_only=True)
class RegistrationReading:
    """An experiment as it was registered and bound, with its needs.

    Attributes:
        change: The changes under test; None before the deploy.
        joint_with: Those of them that are not the treatment commit's own.
        waits_for_deploy: The deploy that it waits for; None once it is bound or decided.
        base_moved: The build in the place of its control; None while that is served.
        nothing_to_compare: That no build without the change is served beside its treatment; None
            once a unit was compared.
        first_look_at: When the target can be looked at first, at the earliest; None before the
            deploy.
    """

    experiment_id: str
    registered_at: datetime
    environment: str
    metric: str
    treatment_commit: str | None
    control_commit: str | None
    deploy_id: str | None
    change: Sequence[str] | None
    joint_with: Sequence[str]
    attempt: int
    starts_at: datetime | None
    decided: bool
    waits_for_deploy: MissingDeploy | None
    base_moved: BaseMove | None
    nothing_to_compare: MissingControl | None
    first_look_at: datetime | None


_READ = text(f"""
SELECT x.experiment_id, x.registered_at, x.environment, x.target_metric AS metric,
    x.treatment_commit, x.control_commit, x.deploy_id, x.change, {joint_with("x")} AS joint_with,
    x.attempt, x.starts_at, x.policy, {ELSEWHERE} AS elsewhere, v.decided
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.experiment_id = :experiment_id AND x.project_id = :project_id
""")

_COMMITS = text("""
SELECT commit_sha FROM commits
WHERE project_id = :project_id AND environment = :environment
ORDER BY recorded_at DESC LIMIT :limit
""")


def read_registration(
    connection: Connection, project_id: int, experiment_id: str
) -> RegistrationReading:
    """Returns an experiment of a project as it was registered, with its present needs.

    Raises:
        Missing: The project has no such experiment.
    """
    bound = {"experiment_id": experiment_id, "project_id": project_id}
    row = connection.execute(_READ, bound).mappings().one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    members = dict(row)
    policy, elsewhere = members.pop("policy"), members.pop("elsewhere")
    awaited = None
    state = ControlState()
    if row["deploy_id"] is None and not row["decided"]:
        awaited = MissingDeploy(
            commit=row["treatment_commit"],
            elsewhere=elsewhere,
            nearest=_nearest(connection, project_id, row["environment"], row["treatment_commit"]),
        )
    elif not row["decided"]:
        state = read_control_state(connection, project_id, row["environment"], experiment_id)
    return RegistrationReading(
        **members,
        waits_for_deploy=awaited,
        base_moved=state.moved,
        nothing_to_compare=state.missing,
        first_look_at=first_look_of(row["starts_at"], policy),
    )


def first_look_of(starts_at: datetime | None, policy: dict[str, Any] | None) -> datetime | None:
    """Returns when the target can be looked at first; None where nothing tells."""
    if starts_at is None or policy is None:
        return None
    try:
        return first_look_at(starts_at, policy)
    except KeyError:
        # A policy that cannot be read: its experiment is set aside, and its page says so.
        return None


def read_control_state(
    connection: Connection, project_id: int, environment: str, experiment_id: str
) -> ControlState:
    """Returns the state of the builds beside the treatment of an open experiment."""
    states = control_states(connection, project_id, environment, only=[experiment_id])
    return states.get(experiment_id, ControlState())


def _nearest(
    connection: Connection, project_id: int, environment: str, commit: str | None
) -> str | None:
    """Returns the recent commit that looks like one that was never deployed."""
    if commit is None:
        return None
    bound = {"project_id": project_id, "environment": environment, "limit": _RECENT_COMMITS}
    recent = connection.execute(_COMMITS, bound).scalars().all()
    # One that is written shorter is compared with as much of the other.
    likeness = {
        known: SequenceMatcher(None, known[: len(commit)], commit[: len(known)]).ratio()
        for known in recent
    }
    nearest = max(likeness, key=likeness.__getitem__, default=None)
    return nearest if nearest is not None and likeness[nearest] >= _LIKENESS else None
