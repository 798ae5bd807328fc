"""Attempts: the experiments of a change that come before another: its tries, and the open one."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from sqlalchemy import Connection, Row, text

from domain.cause import Cause
from domain.policy import Policy
from domain.registration import Registration
from storage.experiments.deploy_record import PostedCommit, StoredDeploy
from storage.postgres.rows import value_of
from storage.schema.policy_columns import HAS_FLAG, IS_PORTFOLIO, OWN_COMMIT
from storage.tenants.settings import Settings

WITHIN = timedelta(days=28)
# A policy names the newest of the attempts before it.
NAMED = 20
# A branch of more commits is shared by many changes.
MOST_COMMITS = 20
# Besides the project's default branch: what teams share under other names.
_SHARED_BRANCH = re.compile(r"main|master|trunk|develop|release.*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class OpenExperiment:
    """An open experiment that a registration may meet again; without a policy before its freeze."""

    experiment_id: str
    target_metric: str
    control_commit: str | None
    request: Registration
    policy: Policy | None

    @classmethod
    def of(cls, row: Row[*tuple[object, ...]]) -> Self:
        """Returns the experiment of a row of `experiments`."""
        policy = None if row.policy is None else Policy.of(row.policy)
        return value_of(cls, row, request=Registration.of_stored(row.request), policy=policy)


@dataclass(frozen=True, kw_only=True)
class Past:
    """The experiments of a change before a registration.

    Attributes:
        attempts: How many experiments are tried again.
        newest: The last of them in their order.
        is_repeated: Whether any was on its metric.
        history_until: Up to when history came to the environment.
        known: The open experiment of the same change or commit.
    """

    attempts: int
    newest: list[str]
    is_repeated: bool
    history_until: datetime | None
    known: OpenExperiment | None


def _provenance(commit: PostedCommit, *, default_branch: str) -> Mapping[str, str | None]:
    """Returns where a posted commit comes from, None where unknown; no branch that many share."""
    number = re.search(r"\d+(?=/?$)", str(commit.get("pull_request") or ""))
    branch = commit.get("branch")
    shared = branch is None or branch == default_branch or _SHARED_BRANCH.fullmatch(branch)
    return {
        "patch_id": commit.get("patch_id"),
        "pull_request": number and number[0],
        "branch": None if shared else branch,
    }


_OWN = "x.experiment_id, x.environment, x.target_metric, x.bound_at, x.closed_at"
# Each way to an experiment has an index of its own, and is read once: each attempt costs a look.
_OF_PROVENANCE = f"""
    UNION
    -- The commit of a flag's deploy is not the change under test.
    SELECT {_OWN} FROM deploys AS d
    JOIN experiments AS x ON x.project_id = d.project_id AND x.deploy_id = d.deploy_id
      AND {OWN_COMMIT} = d.commit_sha
    WHERE d.project_id = :project_id AND d.environment = :environment AND (
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
"""
_SAME = f"""
SELECT x.* FROM own AS x JOIN verdicts AS v USING (experiment_id)
WHERE (is_commit AND {IS_PORTFOLIO} = :is_portfolio OR is_whole AND CASE
    WHEN CAST(:flag AS jsonb) IS NULL THEN NOT ({HAS_FLAG})
    ELSE x.request @> CAST(:flag AS jsonb) END)
  AND x.environment = :environment AND x.target_metric = :metric
  AND x.bound_at IS NOT NULL AND x.closed_at IS NULL AND NOT v.decided
-- This very commit's goes before that of a commit that the change was rebased from.
ORDER BY (x.treatment_commit = :commit) DESC, x.bound_at
LIMIT 1
"""
_PAST, _PAST_OF_PROVENANCE = (
    text(f"""
WITH own AS MATERIALIZED (
    SELECT x.*, x.change && CAST(:change AS text[]) AS is_own,
        x.change = CAST(:change AS text[]) AS is_whole, {OWN_COMMIT} = :commit AS is_commit
    FROM experiments AS x
    WHERE x.project_id = :project_id
      AND (x.change && CAST(:change AS text[]) OR {OWN_COMMIT} = :commit)
), earlier AS MATERIALIZED (
    SELECT x.experiment_id, x.bound_at
    FROM (SELECT {_OWN} FROM own AS x WHERE is_own {provenance}) AS x
    JOIN verdicts AS v USING (experiment_id)
    WHERE x.environment = :environment AND x.bound_at >= :since AND x.bound_at <= :bound_at
      -- An experiment is no attempt where it ended before a comparison, or where a fault of the
      -- set-up held every look.
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
), same AS (
    -- The control of a commit was frozen at its first binding: later deploys make no other
    -- experiment of it.
    {_SAME}
)
SELECT (SELECT count(*) FROM earlier) AS attempts, ARRAY(
    SELECT experiment_id FROM (SELECT * FROM earlier ORDER BY bound_at DESC, experiment_id DESC
        LIMIT {NAMED}) AS newest ORDER BY bound_at, experiment_id
) AS newest, (
    SELECT max(newest_at) FROM histories
    WHERE project_id = :project_id AND environment = :environment
) AS history_until, EXISTS (
    -- One that has ended: an open experiment is met again instead.
    SELECT FROM own WHERE is_whole AND cannot_start IS NULL AND target_metric = :metric
) AS is_repeated, same.*
FROM (VALUES (1)) AS asked LEFT JOIN same ON true
""")
    for provenance in ("", _OF_PROVENANCE)
)


def read_past(
    connection: Connection,
    deploy: StoredDeploy,
    request: Registration,
    settings: Settings,
    *,
    metric: str,
    change: Sequence[str],
    bound_at: datetime,
) -> Past:
    """Returns the experiments of the same change before one that binds now.

    Its attempts are the experiments of the environment that were bound in the 28 days before,
    whatever their target, whose change has a part of this change, or whose commit comes from the
    same patch, pull request or branch; but none that ended before anything was compared, and none
    of which the gate `unit`, `control_unnamed` or `user_unnamed` held every look
    (docs/statistics.md, 'Attempts').

    Args:
        connection: In the transaction of the binding.
    """
    flag = request.treatment_flag
    # The commit of a flag's deploy is not the change under test.
    commit = deploy.commit if flag is None else PostedCommit(sha=deploy.commit_sha)
    known = _provenance(commit, default_branch=settings.default_branch)
    row = connection.execute(
        _PAST if set(known.values()) == {None} else _PAST_OF_PROVENANCE,
        {
            "project_id": deploy.project_id,
            "environment": deploy.environment,
            "since": bound_at - WITHIN,
            "bound_at": bound_at,
            "change": list(change),
            "metric": metric,
            "commit": deploy.commit_sha if flag is None else None,
            "flag": None if flag is None else json.dumps({"treatment_flag": flag.named}),
            "is_portfolio": request.is_portfolio,
            **known,
        },
    ).one()
    met = None if row.experiment_id is None else OpenExperiment.of(row)
    return value_of(Past, row, known=met)
