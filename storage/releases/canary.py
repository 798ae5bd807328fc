"""Canaries: the commits whose newest deploy declares a share of an environment's units."""

from dataclasses import dataclass

from sqlalchemy import Connection, TextClause, text

from storage.postgres.rows import value_of

_CANARIES = """
-- Each commit by its newest deploy alone: a deploy of another commit, and so a hotfix or a second
-- service, ends no declaration but its own.
WITH newest AS (
    SELECT DISTINCT ON (commit_sha) commit_sha, allocation, deployed_at,
        min(deployed_at) OVER (PARTITION BY commit_sha) AS first_at
    FROM deploys
    WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
      AND deployed_at <= clock_timestamp() + interval '2 minutes'
    ORDER BY commit_sha, deployed_at DESC, recorded_at DESC
)
SELECT commit_sha AS commit, allocation AS share
FROM newest
WHERE allocation > 0 AND allocation < 1
ORDER BY {order}, commit_sha
"""
_BY_NEWEST_DEPLOY = text(_CANARIES.format(order="deployed_at"))
_BY_FIRST_DEPLOY = text(_CANARIES.format(order="first_at"))


@dataclass(frozen=True, kw_only=True)
class Canary:
    """A commit whose newest deploy declares a share of units strictly between 0 and 1."""

    commit: str
    share: float


def declared_canaries(connection: Connection, project_id: int, environment: str) -> list[Canary]:
    """Returns the declared canaries of an environment, that with the oldest newest deploy first."""
    return _canaries(connection, _BY_NEWEST_DEPLOY, project_id, environment)


def canaries_by_first_deploy(
    connection: Connection, project_id: int, environment: str
) -> list[Canary]:
    """Returns the same in an order that no step of a ramp changes."""
    return _canaries(connection, _BY_FIRST_DEPLOY, project_id, environment)


def _canaries(
    connection: Connection, query: TextClause, project_id: int, environment: str
) -> list[Canary]:
    rows = connection.execute(query, {"project_id": project_id, "environment": environment})
    return [value_of(Canary, row) for row in rows]
