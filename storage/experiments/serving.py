"""Serving: the builds of an environment, read from its deploys and from the sessions seen."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from domain.lineage.history import History
from domain.lineage.serving import LOOK_BACK, ReleaseStep, SeenCommit, Serving
from storage.experiments.commit_ids import read_commit_ids
from storage.experiments.histories import read_history
from storage.schema.clock import store_time

Environment = tuple[int, str]

# How far a sender's clock may run ahead of the store's, as for events.
AHEAD = timedelta(minutes=2)

# Members of a deploy's commit that lineage reads.
POSTED = """commit ->> 'patch_id' AS patch_id, coalesce(commit -> 'changes', '[]') AS changes,
    coalesce(commit -> 'reverts', '[]') AS reverts"""
_STEPS = text(f"""
SELECT commit_sha AS commit, deployed_at, allocation, recorded_at, base_commit AS base, {POSTED}
FROM deploys
WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
  AND recorded_at <= :at AND deployed_at <= :until
ORDER BY deployed_at, recorded_at, deploy_id
""")
_SEEN_AT = text("""
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
""")


def seen_before(
    connection: Connection, looks: Sequence[tuple[Environment, datetime]]
) -> Mapping[tuple[Environment, datetime], Sequence[SeenCommit]]:
    """Returns the commits seen in each environment in the last hour that had any by each time."""
    asked = sorted(set(looks))
    rows = connection.execute(
        _SEEN_AT,
        {
            "projects": [project_id for (project_id, _), _ in asked],
            "environments": [environment for (_, environment), _ in asked],
            "ats": [at for _, at in asked],
            "look_back": LOOK_BACK,
        },
    )
    rows = rows.all()
    ids = read_commit_ids(
        connection, {row.project_id for row in rows}, like={row.written for row in rows}
    )
    seen: dict[tuple[Environment, datetime], list[SeenCommit]] = {look: [] for look in asked}
    for row in rows:
        meant = ids[row.project_id].meant(row.written, known_at=row.at)
        commit = meant[0].commit if len(meant) == 1 else row.written
        seen[(row.project_id, row.environment), row.at].append(
            SeenCommit(block=row.block, commit=commit, sessions=row.sessions)
        )
    return seen


def read_serving(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    at: datetime | None = None,
    until: datetime | None = None,
    history: History | None = None,
) -> Serving:
    """Returns the builds of an environment at a time.

    Args:
        at: Deploys that were recorded later do not enter; None for now.
        until: Later deploys do not enter: a replay asks of an earlier time by the knowledge of
            now. None for `at`, and as far ahead as the clocks of senders may run.
    """
    at = at or store_time(connection)
    until = until or at + AHEAD
    place = (project_id, environment)
    bound = {"project_id": project_id, "environment": environment, "at": at, "until": until}
    steps = [ReleaseStep(**row) for row in connection.execute(_STEPS, bound).mappings()]
    return Serving(
        steps,
        seen_before(connection, [(place, until)])[place, until],
        history=history or read_history(connection, project_id, environment, known_at=at),
        at=until,
    )


def standing_commit(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    until: datetime | None = None,
    besides: str | None = None,
) -> str | None:
    """Returns the commit of the build that users have, or had; None where nothing tells.

    Args:
        until: An earlier time; None for now.
        besides: A commit that is not asked for.
    """
    serving = read_serving(connection, project_id, environment, until=until)
    standing = serving.standing(besides=besides)
    return None if standing is None else standing.commit
