"""Registrations: an experiment as it is bound, and its needs before it can answer."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, text

from domain.contract import contract_of
from domain.evidence.document import evidence_of, looked_at
from domain.metric import FrozenMetric, metric_definition
from domain.policy import Policy
from domain.registration import Registration, RegistrationAnswer
from storage.experiments.histories import joint_with
from storage.experiments.policy import asked_metrics
from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of
from storage.schema.policy_columns import ALPHA, JUDGED_METRICS
from storage.tenants.settings import Settings, read_settings
from storage.verdicts.next_look import UNITS_FROM, readable_policy
from storage.verdicts.situations import SituationReading, read_situations
from storage.views.recent_traffic import read_name_counts

# Two ids of forty digits by chance share about half of them; a slip of the finger leaves most.
_LIKENESS = 0.8
_RECENT_COMMITS = 500

# Metrics are read from the policy; before the freeze, from the registration under the settings that
# its binding knew.
ASKED = f"""x.target_metric, {JUDGED_METRICS} AS judged, x.request,
    CASE WHEN x.policy IS NULL THEN x.binding END -> 'settings' AS known"""
_READ = text(f"""
SELECT x.experiment_id, x.registered_at, x.environment,
    x.treatment_commit, x.control_commit, x.deploy_id, x.change, {joint_with("x")} AS joint_with,
    x.attempt, x.frozen_at, x.starts_at, {UNITS_FROM} AS units_from, x.declared_at, x.policy,
    v.decided,
    coalesce({ALPHA}, CAST(x.binding #>> '{{settings,alpha}}' AS double precision)) AS alpha,
    v.contract::text AS contract, v.evidence::text AS evidence, {ASKED}
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.experiment_id = :experiment_id AND x.project_id = :project_id
""")

_FROZEN = text("""
SELECT experiment_id, starts_at, policy FROM experiments
WHERE frozen_at IS NOT NULL
ORDER BY frozen_at DESC, experiment_id LIMIT :limit
""")


def frozen_lately(connection: Connection, *, limit: int) -> list[tuple[str, datetime, Policy]]:
    """Returns the newest policies, the newest first, each with its experiment's id and start."""
    rows = connection.execute(_FROZEN, {"limit": limit})
    policies = [(row.experiment_id, row.starts_at, readable_policy(row.policy)) for row in rows]
    return [(id_, starts_at, policy) for id_, starts_at, policy in policies if policy is not None]


_COMMITS = text("""
SELECT commit_sha FROM commits
WHERE project_id = :project_id AND environment = :environment AND commit_sha <> :commit
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
    known, policy = looked_at(current.evidence), readable_policy(row.policy)
    settings = read_settings(connection, project_id)
    ((_, silent),) = read_awaited(connection, project_id, settings, [row])
    registration = value_of(
        RegistrationAnswer,
        row,
        retrospective=known is not None and known.retrospective,
        waits_for_deploy=current.awaited,
        base_moved=current.builds.moved,
        nothing_to_compare=current.builds.missing,
        metric=row.target_metric,
        never_received=silent,
        fires_at=None if row.alpha is None else row.attempt**2 / row.alpha,
        received=tuple(read_name_counts(connection, project_id)),
        first_look_at=None if policy is None else policy.first_look_at(row.units_from),
        reward_at=None if policy is None else policy.reward_at(row.starts_at),
        situation=current.situation,
    )
    return registration, current


def _nearest(
    connection: Connection, project_id: int, environment: str, commit: str | None
) -> str | None:
    """Returns the recent commit that looks like a commit that was never deployed."""
    if commit is None:
        return None
    asked = {"project_id": project_id, "environment": environment, "commit": commit}
    recent = connection.execute(_COMMITS, {**asked, "limit": _RECENT_COMMITS}).scalars().all()
    # An id that is written shorter is compared with as much of the other.
    likeness = {
        known: SequenceMatcher(None, known[: len(commit)], commit[: len(known)]).ratio()
        for known in recent
    }
    nearest = max(likeness, key=likeness.__getitem__, default=None)
    return nearest if nearest is not None and likeness[nearest] >= _LIKENESS else None


_CAME = text("SELECT event FROM seen_names WHERE project_id = :project_id AND event = ANY(:names)")


def read_awaited(
    connection: Connection, project_id: int, settings: Settings, rows: Sequence[Row[Any]]
) -> list[tuple[Sequence[str], tuple[str, ...]]]:
    """Returns of experiments the events of the target, and which metrics wait for a first event.

    Args:
        rows: With the columns of `ASKED`.
    """
    awaited = [
        _awaited(settings, row.target_metric, row.judged, row.request, row.known) for row in rows
    ]
    names = {event for metrics in awaited for metric in metrics for event in metric.sources}
    came = connection.execute(_CAME, {"project_id": project_id, "names": [*names]}).scalars()
    silent = names.difference(came)
    return [
        (metrics[0].sources, tuple(each.name for each in metrics if silent >= {*each.sources}))
        for metrics in awaited
    ]


def _awaited(
    settings: Settings, target: str, judged: object, request: Mapping[str, object], known: object
) -> list[FrozenMetric]:
    """Returns the target and the guardrails that a keep waits for; where unreadable, the target."""
    with suppress(msgspec.ValidationError):
        if judged is None:
            bound = settings if known is None else msgspec.convert(known, Settings)
            metrics = asked_metrics(bound, target, Registration.of_stored(request).guardrails)
        else:
            metrics = msgspec.convert(judged, list[FrozenMetric])
        return [each for each in metrics if each is metrics[0] or each.margin is not None]
    return [metric_definition(target, settings.metrics)]
