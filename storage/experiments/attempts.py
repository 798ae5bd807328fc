"""Attempts: the earlier experiments that count as tries of the same change."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from domain.cause import Cause
from storage.schema.policy_columns import HAS_FLAG

WITHIN = timedelta(days=28)
# A policy names the newest of the attempts before it.
NAMED = 20
# A branch of more commits is shared by many changes.
MOST_COMMITS = 20
# Besides the project's default branch: what teams share under other names.
_SHARED_BRANCH = re.compile(r"main|master|trunk|develop|release.*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where the commit of a deploy comes from; each member may be unknown.

    Attributes:
        patch_id: `git patch-id --stable` of the commit.
        branch: Its branch, where it is no branch that many changes share.
    """

    patch_id: str | None
    pull_request: str | None
    branch: str | None


_UNKNOWN = Provenance(patch_id=None, pull_request=None, branch=None)


def provenance_of(commit: Mapping[str, Any], *, default_branch: str) -> Provenance:
    """Returns the provenance of a commit as it was posted."""
    number = re.search(r"\d+(?=/?$)", str(commit.get("pull_request") or ""))
    branch = commit.get("branch")
    shared = branch is None or branch == default_branch or _SHARED_BRANCH.fullmatch(branch)
    return Provenance(
        patch_id=commit.get("patch_id"),
        pull_request=None if number is None else number[0],
        branch=None if shared else branch,
    )


_EARLIER = text(f"""
-- The commit of a flag's deploy is not the change under test.
SELECT x.experiment_id, count(*) OVER () AS attempts
FROM experiments AS x
JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment
  AND x.bound_at >= :since AND x.bound_at <= :bound_at
  -- What ended before anything was compared, closed just now say, or was held at every look for the
  -- set-up's sake, was nobody's try.
  AND NOT coalesce(
      jsonb_exists_any(
          CAST(v.evidence #> '{{gates,held_throughout}}' AS jsonb),
          ARRAY['{Cause.UNIT}', '{Cause.CONTROL_UNNAMED}', '{Cause.USER_UNNAMED}']
      ), false
  )
  AND NOT (
      (v.decided OR x.closed_at IS NOT NULL)
      AND coalesce(CAST(v.evidence #>> '{{totals,W}}' AS double precision), 0) = 0
  )
  AND (
    x.change && CAST(:change AS text[])
    OR NOT ({HAS_FLAG}) AND x.deploy_id = ANY (ARRAY(
        SELECT d.deploy_id FROM deploys AS d
        WHERE :has_provenance AND d.project_id = :project_id AND d.environment = :environment AND (
            d.commit ->> 'patch_id' = :patch_id
            OR substring(d.commit ->> 'pull_request' FROM '\\d+(?=/?$)') = :pull_request
            OR d.commit ->> 'branch' = :branch AND (
                SELECT count(DISTINCT c.commit_sha) <= {MOST_COMMITS}
                FROM deploys AS c
                WHERE c.project_id = :project_id AND c.environment = :environment
                  AND c.recorded_at >= :since AND c.recorded_at <= :bound_at
                  AND c.commit ->> 'branch' = :branch
            )
        )
    ))
  )
ORDER BY x.bound_at DESC, x.experiment_id DESC LIMIT {NAMED}
""")


def earlier_attempts(
    connection: Connection,
    project_id: int,
    *,
    environment: str,
    change: Sequence[str],
    provenance: Provenance | None,
    bound_at: datetime,
) -> tuple[int, list[str]]:
    """Returns how many experiments an experiment tries again that binds now, and the newest.

    They are those of the environment that were bound in the 28 days before, whatever their target,
    whose change has a part of this change, or whose commit comes from the same patch, pull request
    or branch; but none that ended before anything was compared, and none of which the gate `unit`,
    `control_unnamed` or `user_unnamed` held every look (docs/statistics.md, 'Attempts').
    Of the newest the oldest comes first.

    Args:
        connection: In the transaction of the binding.
        provenance: Of its deploy's commit; None for a flag.
    """
    known = provenance or _UNKNOWN
    rows = connection.execute(
        _EARLIER,
        {
            "project_id": project_id,
            "environment": environment,
            "since": bound_at - WITHIN,
            "bound_at": bound_at,
            "change": list(change),
            **asdict(known),
            "has_provenance": known != _UNKNOWN,
        },
    ).all()
    return (rows[0].attempts if rows else 0), [row.experiment_id for row in reversed(rows)]
