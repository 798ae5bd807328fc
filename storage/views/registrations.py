"""Registrations: an experiment as it is bound, and its needs before it can answer."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import SequenceMatcher

from sqlalchemy import Connection, text

from domain.contract import contract_of
from domain.evidence.document import evidence_of, looked_at
from domain.policy import FrozenSource, Policy, UnreadablePolicyError
from domain.registration import RegistrationAnswer
from storage.experiments.experiments import Registered
from storage.experiments.histories import joint_with
from storage.log.received_events import read_name_counts
from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of
from storage.schema.policy_columns import ALPHA, NEVER_RECEIVED
from storage.verdicts.situations import SituationReading, read_situations

# Two ids of forty digits by chance share about half of them; a slip of the finger leaves most.
_LIKENESS = 0.8
_RECENT_COMMITS = 500
_EACH_RUN = timedelta(minutes=1)

# From when on units of the first look come: its first unit's block, else the blocks yet to close.
UNITS_FROM = """greatest(x.starts_at, coalesce(
    (SELECT to_timestamp(min(u.block) / 1e6) FROM block_units AS u
     WHERE u.experiment_id = x.experiment_id AND u.treatment + u.control > 0),
    (SELECT at FROM cursors WHERE stage = 'exposures' AND experiment_id = x.experiment_id)))"""
_READ = text(f"""
SELECT x.experiment_id, x.registered_at, x.environment, x.target_metric AS metric,
    x.treatment_commit, x.control_commit, x.deploy_id, x.change, {joint_with("x")} AS joint_with,
    x.attempt, x.frozen_at, x.starts_at, {UNITS_FROM} AS units_from, x.declared_at, x.policy,
    v.decided,
    coalesce({ALPHA}, CAST(x.binding #>> '{{settings,alpha}}' AS double precision)) AS alpha,
    v.contract::text AS contract, {NEVER_RECEIVED} AS never_received, v.evidence::text AS evidence
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.experiment_id = :experiment_id AND x.project_id = :project_id
""")

_FROZEN = text("""
SELECT experiment_id, starts_at, policy FROM experiments
WHERE frozen_at IS NOT NULL
ORDER BY frozen_at DESC, experiment_id LIMIT :limit
""")


@dataclass(frozen=True, kw_only=True)
class FrozenExperiment:
    """An experiment that has its policy, and the events that the policy was frozen from."""

    experiment_id: str
    starts_at: datetime
    unit: str
    read_from: Sequence[FrozenSource]


def frozen_lately(connection: Connection, *, limit: int) -> list[FrozenExperiment]:
    """Returns the experiments whose policy was frozen last, the last first."""
    rows = connection.execute(_FROZEN, {"limit": limit}).all()
    policies = [(row, policy) for row in rows if (policy := _readable(row.policy)) is not None]
    return [
        value_of(FrozenExperiment, row, unit=policy.unit, read_from=policy.read_from)
        for row, policy in policies
    ]


_COMMITS = text("""
SELECT commit_sha FROM commits
WHERE project_id = :project_id AND environment = :environment
ORDER BY recorded_at DESC LIMIT :limit
""")


def read_current(
    connection: Connection, project_id: int, experiment_id: str
) -> tuple[RegistrationAnswer, SituationReading]:
    """Returns an experiment as it was registered, and its published verdict as of now.

    Raises:
        Missing: The project has no such experiment.
    """
    bound = {"experiment_id": experiment_id, "project_id": project_id}
    row = connection.execute(_READ, bound).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    nearest = None
    if row.deploy_id is None and not row.decided:
        nearest = _nearest(connection, project_id, row.environment, row.treatment_commit)
    published = {experiment_id: (contract_of(row.contract), evidence_of(row.evidence))}
    current = read_situations(connection, published, nearest=nearest)[experiment_id]
    known, policy = looked_at(current.evidence), _readable(row.policy)
    registration = value_of(
        RegistrationAnswer,
        row,
        retrospective=known is not None and known.retrospective,
        waits_for_deploy=current.awaited,
        base_moved=current.builds.moved,
        nothing_to_compare=current.builds.missing,
        fires_at=None if row.alpha is None else row.attempt**2 / row.alpha,
        received=tuple(read_name_counts(connection, project_id)),
        first_look_at=None if policy is None else policy.first_look_at(row.units_from),
        reward_at=None if policy is None else policy.reward_at(row.starts_at),
        situation=current.situation,
    )
    return registration, current


_START = text(f"""
SELECT {UNITS_FROM} AS units_from, x.policy,
    CASE WHEN x.frozen_at IS NULL THEN x.bound_at END AS bound_at
FROM experiments AS x
WHERE x.project_id = :project_id AND x.experiment_id = :experiment_id
""")


def read_first_look(
    connection: Connection, project_id: int, registered: Registered
) -> datetime | None:
    """Returns when to ask for an experiment first; None where nothing tells.

    That is when its target can be looked at, or the pipeline's next run, which freezes its policy.
    """
    if registered.created:
        return None if registered.bound_at is None else registered.bound_at + _EACH_RUN
    bound = {"project_id": project_id, "experiment_id": registered.experiment_id}
    row = connection.execute(_START, bound).one()
    if row.bound_at is not None:
        return row.bound_at + _EACH_RUN
    return first_look_of(row.units_from, row.policy)


def first_look_of(
    units_from: datetime | None, stored: Mapping[str, object] | None
) -> datetime | None:
    """Returns when the target can be looked at first; None where nothing tells."""
    policy = _readable(stored)
    return None if policy is None or units_from is None else policy.first_look_at(units_from)


def _readable(stored: Mapping[str, object] | None) -> Policy | None:
    """Returns a policy; None before it is frozen, and where an experiment is set aside for it."""
    with suppress(UnreadablePolicyError):
        return None if stored is None else Policy.of(stored)
    return None


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
