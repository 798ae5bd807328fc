"""Serving: the builds of an environment, read from its deploys and from the sessions seen."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from sqlalchemy import Connection, text

from domain.lineage.control_state import ControlState, control_state
from domain.lineage.history import CommitFact, History
from domain.lineage.serving import LOOK_BACK, ReleaseStep, SeenCommit, Serving
from storage.experiments.commit_ids import read_commit_ids
from storage.experiments.histories import FACTS
from storage.postgres.rows import value_of
from storage.schema.clock import store_time
from storage.schema.policy_columns import IS_PORTFOLIO

Environment = tuple[int, str]

# How far a sender's clock may run ahead of the store's, as for events.
AHEAD = timedelta(minutes=2)
_EVER = datetime.max.replace(tzinfo=UTC)
_SHORT = 12

# Members of a deploy's commit that lineage reads.
POSTED = """commit ->> 'patch_id' AS patch_id, coalesce(commit -> 'changes', '[]') AS changes,
    coalesce(commit -> 'reverts', '[]') AS reverts"""
_STEPS = f"""
SELECT commit_sha AS commit, deployed_at, allocation, recorded_at, base_commit AS base, {POSTED}
FROM deploys
WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
  AND recorded_at <= :at AND deployed_at <= :until
ORDER BY deployed_at, recorded_at, deploy_id
"""
_SEEN_AT = """
SELECT s.project_id, s.environment, asked.at, s.block, s.commit_sha AS written, s.sessions
FROM unnest(
    CAST(:projects AS bigint[]), CAST(:environments AS text[]), CAST(:ats AS timestamptz[])
) AS asked (project_id, environment, at)
CROSS JOIN LATERAL (
    SELECT max(block) AS block FROM seen_commits
    WHERE project_id = asked.project_id AND environment = asked.environment
      AND closed_at <= asked.at
) AS newest
JOIN seen_commits AS s USING (project_id, environment)
WHERE s.closed_at <= asked.at AND s.block > newest.block - CAST(:look_back AS interval)
ORDER BY s.block, s.commit_sha
"""
# A single statement: a request that registers pays for each.
_SERVING = text(
    "SELECT json_build_array({}, {}, {})::text".format(
        *(
            f"(SELECT coalesce(json_agg(each), '[]') FROM ({rows}) AS each)"
            for rows in (_STEPS, _SEEN_AT, FACTS)
        )
    )
)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    project_id: int
    environment: str
    at: datetime
    block: datetime
    written: str
    sessions: int


_Read = tuple[Sequence[ReleaseStep], Sequence[_Seen], Sequence[CommitFact]]


def seen_before(
    connection: Connection, looks: Sequence[tuple[Environment, datetime]]
) -> Mapping[tuple[Environment, datetime], Sequence[SeenCommit]]:
    """Returns the commits seen in each environment in the last hour that had any by each time."""
    asked = sorted(set(looks))
    rows = connection.execute(text(_SEEN_AT), _looks(asked)).all()
    seen: dict[tuple[Environment, datetime], list[SeenCommit]] = {look: [] for look in asked}
    for row, block in _by_commit(connection, [value_of(_Seen, row) for row in rows]):
        seen[(row.project_id, row.environment), row.at].append(block)
    return seen


def _looks(asked: Sequence[tuple[Environment, datetime]]) -> dict[str, object]:
    return {
        "projects": [project_id for (project_id, _), _ in asked],
        "environments": [environment for (_, environment), _ in asked],
        "ats": [at for _, at in asked],
        "look_back": LOOK_BACK,
    }


def _by_commit(connection: Connection, rows: Sequence[_Seen]) -> Iterator[tuple[_Seen, SeenCommit]]:
    ids = read_commit_ids(
        connection, {row.project_id for row in rows}, like={row.written for row in rows}
    )
    for row in rows:
        meant = ids[row.project_id].meant(row.written, known_at=row.at)
        commit = meant[0].commit if len(meant) == 1 else row.written
        yield row, SeenCommit(block=row.block, commit=commit, sessions=row.sessions)


def read_serving(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    at: datetime | None = None,
    until: datetime | None = None,
) -> Serving:
    """Returns the builds of an environment at a time, with its history as known then.

    Args:
        at: Deploys that were recorded later do not enter; None for now.
        until: Later deploys do not enter: a replay asks of an earlier time by the knowledge of
            now. None for `at`, and as far ahead as the clocks of senders may run.
    """
    at = at or store_time(connection)
    until = until or at + AHEAD
    bound = {"project_id": project_id, "environment": environment, "at": at, "until": until}
    looks = _looks([((project_id, environment), until)])
    document = connection.execute(_SERVING, {**bound, **looks}).scalar_one()
    steps, seen, facts = msgspec.json.decode(document, type=_Read)
    blocks = [block for _, block in _by_commit(connection, seen)]
    return Serving(steps, blocks, history=History(facts, known_at=at), at=until)


def standing_commit(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    until: datetime | None = None,
    besides: str | None = None,
) -> str | None:
    """Returns the commit of the build users have, or had at `until`; None where nothing tells."""
    serving = read_serving(connection, project_id, environment, until=until)
    standing = serving.standing(besides=besides)
    return None if standing is None else standing.commit


def later_build(
    connection: Connection,
    project_id: int,
    environment: str,
    commit: str,
    *,
    deployed_at: datetime = _EVER,
    serving: Serving | None = None,
) -> str | None:
    """Returns the build that users have instead of a hold-back; None where a commit is none.

    A declared share of a commit is a hold-back where another build, which users have, carries all
    its changes, and users had them already when the share was declared. A canary that a hotfix was
    built on has its changes in what users have, too, but only since.

    Args:
        serving: The builds of now, where they are read already.
    """
    serving = serving or read_serving(connection, project_id, environment)
    since = serving.held_back_since(commit)
    if since is None or deployed_at < since:
        return None
    history, standing = serving.history, serving.standing(besides=commit)
    own, now = history.lineage(commit), None if standing is None else standing.commit
    if now is None or not own <= history.lineage(now):
        return None
    before = since - timedelta(microseconds=1)
    then = standing_commit(connection, project_id, environment, until=before)
    return None if then is None or not own <= history.lineage(then) else now


def nothing_to_judge(commit: str, later: str) -> str:
    """Returns why a hold-back has no verdict of its own, for a person."""
    return (
        f"{commit[:_SHORT]} is a hold-back: users have {later[:_SHORT]}, which carries all its"
        " changes, so there is nothing to judge"
    )


# --- Beside the treatments of open experiments ---------------------------------------------------

_OPEN = text(f"""
SELECT x.experiment_id, x.treatment_commit, x.control_commit, x.change,
    coalesce(x.starts_at, x.bound_at) AS starts_at,
    coalesce((v.evidence #>> '{{totals,W}}')::float, 0) > 0 AS compared
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment AND x.bound_at IS NOT NULL
  AND NOT v.decided AND x.closed_at IS NULL AND NOT {IS_PORTFOLIO}
  -- Both values of a flag are served by the one build.
  AND x.control_commit IS DISTINCT FROM x.treatment_commit
  AND (CAST(:only AS text[]) IS NULL OR x.experiment_id = ANY(CAST(:only AS text[])))
ORDER BY x.experiment_id
""")


def control_states(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    known_at: datetime | None = None,
    only: Collection[str] | None = None,
) -> dict[str, ControlState]:
    """Returns the state of the builds beside the treatment of each open experiment.

    Args:
        known_at: The end of the transaction that records a deploy; None for now.
        only: The experiments to ask for; None for all of the environment.
    """
    bound = {"project_id": project_id, "environment": environment}
    listed = connection.execute(_OPEN, {**bound, "only": None if only is None else list(only)})
    experiments = listed.all()
    if not experiments:
        return {}
    known_at = known_at or store_time(connection)
    serving = read_serving(connection, project_id, environment, at=known_at)
    return {
        experiment.experiment_id: control_state(
            serving,
            serving.history,
            treatment=experiment.treatment_commit,
            control=experiment.control_commit,
            change=frozenset(experiment.change),
            compared=experiment.compared,
            starts_at=experiment.starts_at,
        )
        for experiment in experiments
    }
