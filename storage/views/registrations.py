"""Registrations: an experiment as it is bound, and its needs before it can answer."""

from collections.abc import Callable
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any

from sqlalchemy import Connection, Row, text

from domain.contract import contract_of
from domain.evidence.document import evidence_of, looked_at
from domain.lineage.control_state import ControlState
from domain.lineage.serving import ReleaseStep
from domain.registration import PRODUCTION, Arrivals, MissingDeploy, RegistrationAnswer
from domain.wording.situation import situation
from storage.experiments.control_states import control_states
from storage.experiments.deploys import ELSEWHERE
from storage.experiments.histories import joint_with
from storage.experiments.policy import first_look_at, reward_at
from storage.log.received_events import read_name_counts
from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of
from storage.schema.policy_columns import CONTRAST_SECONDS, NEVER_RECEIVED

# Two ids of forty digits by chance share about half of them; a slip of the finger leaves most.
_LIKENESS = 0.8
_RECENT_COMMITS = 500


# Arrivals as JSON; NULL once a unit is complete, or it is decided.
ARRIVALS = f"""CASE
    WHEN NOT v.decided AND coalesce((v.evidence #>> '{{sessions,accumulated}}')::bigint, 0) = 0
    THEN (
        SELECT json_build_object('units', coalesce(sum(u.treatment + u.control), 0),
            'events', coalesce((
            -- Admissions name no environment; nearly all events are of production.
            SELECT bool_or(a.accepted > 0) FROM admissions AS a
            WHERE x.environment = '{PRODUCTION}' AND a.project_id = x.project_id
              AND a.minute >= date_trunc('minute', x.starts_at)
        ), false))
        FROM block_units AS u WHERE u.experiment_id = x.experiment_id
    )
END"""
# The newest step of the treatment since the look that decided: it says what was done about it.
ACTED = """(
    SELECT json_build_array(d.allocation, d.deployed_at) FROM deploys AS d
    WHERE v.decided AND d.project_id = x.project_id AND d.environment = x.environment
      AND d.commit_sha = x.treatment_commit AND d.deployed_at > v.as_of
      AND (d.allocation IS NULL OR d.allocation IN (0, 1)) AND d.withdrawn_at IS NULL
    ORDER BY d.deployed_at DESC, d.recorded_at DESC LIMIT 1
)"""

_READ = text(f"""
SELECT x.experiment_id, x.registered_at, x.environment, x.target_metric AS metric,
    x.treatment_commit, x.control_commit, x.deploy_id, x.change, {joint_with("x")} AS joint_with,
    x.attempt, x.starts_at, x.declared_at, x.policy, {ELSEWHERE} AS elsewhere, v.decided,
    {NEVER_RECEIVED} AS never_received,
    v.contract::text AS contract, v.evidence::text AS evidence, {CONTRAST_SECONDS} AS contrast,
    {ARRIVALS} AS arrivals, {ACTED} AS acted
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
) -> RegistrationAnswer:
    """Returns an experiment of a project as it was registered, with its present needs.

    Raises:
        Missing: The project has no such experiment.
    """
    bound = {"experiment_id": experiment_id, "project_id": project_id}
    row = connection.execute(_READ, bound).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    awaited = None
    state = ControlState()
    if row.deploy_id is None and not row.decided:
        awaited = MissingDeploy(
            commit=row.treatment_commit,
            elsewhere=tuple(row.elsewhere),
            nearest=_nearest(connection, project_id, row.environment, row.treatment_commit),
        )
    elif not row.decided:
        state = read_control_state(connection, project_id, row.environment, experiment_id)
    evidence = evidence_of(row.evidence)
    known = looked_at(evidence)
    return value_of(
        RegistrationAnswer,
        row,
        retrospective=known is not None and known.retrospective,
        waits_for_deploy=awaited,
        base_moved=state.moved,
        nothing_to_compare=state.missing,
        fires_at=_fires_at(row.policy),
        received=tuple(read_name_counts(connection, project_id)),
        first_look_at=_moment_of(first_look_at, row.starts_at, row.policy),
        reward_at=_moment_of(reward_at, row.starts_at, row.policy),
        situation=situation(
            contract_of(row.contract),
            evidence,
            state,
            awaited=awaited,
            environment=row.environment,
            contrast_seconds=row.contrast,
            arrivals=None if row.arrivals is None else Arrivals(**row.arrivals),
            acted=acted_step(row),
        ),
    )


def _fires_at(policy: dict[str, Any] | None) -> float | None:
    """Returns the e-value at which a test fires, where its policy can be read."""
    if policy is None or not {"alpha", "attempt"} <= policy.keys():
        return None
    return policy["attempt"] ** 2 / policy["alpha"]


def acted_step(row: Row[Any]) -> ReleaseStep | None:
    """Returns the step that was taken after a decision, of a row of `ACTED`."""
    if row.acted is None:
        return None
    allocation, at = row.acted
    moment = datetime.fromisoformat(at)
    return ReleaseStep(commit=row.treatment_commit, deployed_at=moment, allocation=allocation)


_START = text("""
SELECT starts_at, policy FROM experiments
WHERE project_id = :project_id AND experiment_id = :experiment_id
""")


def read_first_look(connection: Connection, project_id: int, experiment_id: str) -> datetime | None:
    """Returns when an experiment's target can be looked at first; None where nothing tells."""
    bound = {"project_id": project_id, "experiment_id": experiment_id}
    row = connection.execute(_START, bound).one()
    return first_look_of(row.starts_at, row.policy)


def first_look_of(starts_at: datetime | None, policy: dict[str, Any] | None) -> datetime | None:
    """Returns when the target can be looked at first; None where nothing tells."""
    return _moment_of(first_look_at, starts_at, policy)


def _moment_of(
    moment: Callable[[datetime, dict[str, Any]], datetime],
    starts_at: datetime | None,
    policy: dict[str, Any] | None,
) -> datetime | None:
    """Returns a moment that the policy fixed; None where nothing tells."""
    if starts_at is None or policy is None:
        return None
    try:
        return moment(starts_at, policy)
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
    """Returns the recent commit that looks like a commit that was never deployed."""
    if commit is None:
        return None
    bound = {"project_id": project_id, "environment": environment, "limit": _RECENT_COMMITS}
    recent = connection.execute(_COMMITS, bound).scalars().all()
    # An id that is written shorter is compared with as much of the other.
    likeness = {
        known: SequenceMatcher(None, known[: len(commit)], commit[: len(known)]).ratio()
        for known in recent
    }
    nearest = max(likeness, key=likeness.__getitem__, default=None)
    return nearest if nearest is not None and likeness[nearest] >= _LIKENESS else None
