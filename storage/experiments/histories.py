"""The histories of environments, read from the recorded commits."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Connection, text, update
from sqlalchemy.dialects.postgresql import insert

from domain.lineage.history import CommitFact
from storage.postgres.rows import value_of
from storage.schema.policy_columns import CHECKS_DRAWS, FLAG_NAME, HAS_FLAG
from storage.schema.tables import commits


def read_facts(
    connection: Connection, environments: Iterable[tuple[int, str]]
) -> dict[tuple[int, str], list[CommitFact]]:
    """Returns the recorded commits of each (project, environment)."""
    facts: dict[tuple[int, str], list[CommitFact]] = defaultdict(list)
    wanted = sorted(set(environments))
    for row in connection.execute(_FACTS, among(wanted)):
        facts[row.project_id, row.environment].append(
            value_of(CommitFact, row, changes=frozenset(row.changes))
        )
    return facts


AMONG = """IN (
    SELECT * FROM unnest(CAST(:projects AS bigint[]), CAST(:names AS text[]))
)"""
_ANY_FACTS = """
SELECT project_id, environment, commit_sha AS commit, changes, recorded_at, base, base_recorded_at,
    assumed_base, assumed_at
FROM commits WHERE {} ORDER BY recorded_at, commit_sha
"""
FACTS = _ANY_FACTS.format("project_id = :project_id AND environment = :environment")
_FACTS = text(_ANY_FACTS.format(f"(project_id, environment) {AMONG}"))


def among(wanted: Sequence[tuple[int, str]]) -> dict[str, object]:
    """Returns the parameters of `AMONG` for some environments, each (project, environment)."""
    return {"projects": [each for each, _ in wanted], "names": [name for _, name in wanted]}


_FLAGS = text(f"""
SELECT x.project_id, x.environment, {FLAG_NAME} AS name, min(x.bound_at) AS since
FROM experiments AS x
WHERE {HAS_FLAG} AND x.bound_at IS NOT NULL AND NOT {CHECKS_DRAWS}
  AND (x.project_id, x.environment) {AMONG}
GROUP BY x.project_id, x.environment, name
""")


def read_flags(
    connection: Connection, environments: Iterable[tuple[int, str]]
) -> dict[tuple[int, str], dict[str, datetime]]:
    """Returns the flags that split strata in each (project, environment), and since when.

    They are under test there. A flag that the published draw gives falls evenly into the arms of
    every other change, and is none of them.
    """
    flags: dict[tuple[int, str], dict[str, datetime]] = defaultdict(dict)
    wanted = sorted(set(environments))
    for row in connection.execute(_FLAGS, among(wanted)):
        flags[row.project_id, row.environment][row.name] = row.since
    return flags


def joint_with(experiment: str) -> str:
    """Returns the SQL of the changes that an experiment tests beside its own commit's.

    There are some where the treatment stands on a build that users do not have, another canary
    say: its effect is the effect of all of them together. None before the deploy, and of a flag.
    """
    return f"""ARRAY(
    SELECT joint.change FROM unnest({experiment}.change) AS joint(change)
    WHERE {experiment}.control_commit IS DISTINCT FROM {experiment}.treatment_commit
      AND NOT EXISTS (
          SELECT FROM commits AS own
          WHERE own.project_id = {experiment}.project_id
            AND own.environment = {experiment}.environment
            AND own.commit_sha = {experiment}.treatment_commit
            AND joint.change = ANY(own.changes)
      )
    ORDER BY joint.change
)"""


def remember_commit(
    connection: Connection,
    project_id: int,
    environment: str,
    sha: str,
    *,
    changes: Iterable[str],
    base: str | None,
    assumed: bool,
    recorded_at: datetime,
) -> None:
    """Records a commit's changes and base, unless they were recorded before."""
    connection.execute(
        insert(commits)
        .values(
            project_id=project_id,
            environment=environment,
            commit_sha=sha,
            changes=sorted(set(changes)),
            recorded_at=recorded_at,
        )
        .on_conflict_do_nothing()
    )
    if base is not None:
        place = (project_id, environment, sha)
        remember_base(connection, *place, base=base, assumed=assumed, recorded_at=recorded_at)


def remember_base(
    connection: Connection,
    project_id: int,
    environment: str,
    sha: str,
    *,
    base: str,
    assumed: bool,
    recorded_at: datetime,
) -> None:
    """Gives a commit the base that it did not have; a base that a post named stays."""
    columns = ("assumed_base", "assumed_at") if assumed else ("base", "base_recorded_at")
    connection.execute(
        update(commits)
        .where(
            commits.c.project_id == project_id,
            commits.c.environment == environment,
            commits.c.commit_sha == sha,
            commits.c.base.is_(None),
            commits.c[columns[0]].is_(None),
        )
        .values(dict(zip(columns, (base, recorded_at), strict=True)))
    )
