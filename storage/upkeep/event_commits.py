"""The newest events of the log: the pages that they fill, and the commits that they name."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, text

from storage.experiments.commit_ids import EVER, read_commit_ids
from storage.postgres.engine import SCHEMA

_KNOWN = text("""
SELECT project_id, environment, written
FROM unnest(
    CAST(:projects AS int[]), CAST(:environments AS text[]), CAST(:written AS text[]),
    CAST(:commits AS text[])
) AS asked (project_id, environment, written, commit_sha)
WHERE EXISTS (
    SELECT FROM commits AS c
    WHERE c.project_id = asked.project_id AND c.environment = asked.environment
      AND asked.commit_sha IN (c.commit_sha, c.base, c.assumed_base)
)
""")


_NEWEST_PARTITIONS = text("""
-- Days to come have partitions too, without a page.
SELECT c.relname AS name,
    pg_relation_size(c.oid) / current_setting('block_size')::int AS pages
FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass(:log) AND pg_relation_size(c.oid) > 0
ORDER BY c.relname DESC
LIMIT :limit
""")


@dataclass(frozen=True, kw_only=True)
class EventCommits:
    """Some ids that events name, each as (project, environment, id)."""

    known: Collection[tuple[int, str, str]]
    ambiguous: Collection[tuple[int, str, str]]


def event_commits(connection: Connection, named: Collection[tuple[int, str, str]]) -> EventCommits:
    """Returns which of some ids, each as (project, environment, id), are known or ambiguous."""
    ids = read_commit_ids(
        connection,
        (project_id for project_id, _, _ in named),
        like=[written for _, _, written in named],
    )
    meanings = {place: ids[place[0]].meant(place[2], known_at=EVER) for place in named}
    meant = {place: commits[0].commit for place, commits in meanings.items() if len(commits) == 1}
    rows = connection.execute(
        _KNOWN,
        {
            "projects": [project_id for project_id, _, _ in meant],
            "environments": [environment for _, environment, _ in meant],
            "written": [written for _, _, written in meant],
            "commits": list(meant.values()),
        },
    )
    return EventCommits(
        known={(row.project_id, row.environment, row.written) for row in rows},
        ambiguous={place for place, commits in meanings.items() if len(commits) > 1},
    )


def newest_partitions(connection: Connection, *, limit: int) -> dict[str, int]:
    """Returns how many pages the last days hold that have any events, by partition, newest first.

    Events are appended: the last pages of the newest day hold the newest ones.
    """
    bound = {"log": f"{SCHEMA}.runtime_events", "limit": limit}
    return {row.name: int(row.pages) for row in connection.execute(_NEWEST_PARTITIONS, bound)}
