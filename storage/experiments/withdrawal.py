"""The withdrawal of a deploy that was posted by mistake.

The record stays, marked: experiments that were bound before go on reading it, so that no closed
block changes and an evaluation as of an earlier time is the same. Everything else, the same post
included, goes on as if it had never come.
"""

from datetime import datetime

from sqlalchemy import Connection, select, text

from domain.figures import first_names
from storage.experiments.deploy_record import DeployRecord, StoredDeploy, read_deploys
from storage.postgres.refusal import Conflict, Missing
from storage.schema.clock import RECEIVED
from storage.schema.tables import deploys
from storage.tenants.audit_trail import PROGRAM, Actor, record_action
from storage.tenants.settings import lock_project

_NAMED = 3


def withdraw_deploy(
    connection: Connection, project_id: int, deploy_id: str, *, by: Actor = PROGRAM
) -> tuple[DeployRecord, datetime]:
    """Withdraws a deploy, and returns its record and when it was withdrawn.

    Withdrawn again, nothing changes.

    Raises:
        Missing: The project has no such deploy.
        Conflict: An experiment is bound to it, or an open experiment compares its commit.
    """
    lock_project(connection, project_id)
    own = (deploys.c.project_id == project_id, deploys.c.deploy_id == deploy_id)
    if not (matching := read_deploys(connection, select(deploys).where(*own))):
        raise Missing("unknown_deploy", "there is no such deploy")
    (deploy,) = matching
    if deploy.withdrawn_at is not None:
        return deploy.record, deploy.withdrawn_at
    _refuse_if_in_use(connection, deploy)
    # Events that arrive meanwhile are in a block that has not closed.
    for forget in (_FORGET_COMMIT, _FORGET_IDS):
        connection.execute(forget, _members(deploy, "environment", "commit_sha", "deploy_id"))
    if deploy.graph_before != deploy.graph_id:
        connection.execute(
            _RESTORE_GRAPH, _members(deploy, "graph_id", "graph_before", "recorded_at")
        )
    record_action(connection, project_id, "deploy_withdrawn", by=by, subject=deploy_id)
    withdrawn_at = connection.execute(_WITHDRAW, {"deploy_id": deploy_id}).scalar_one()
    return deploy.record, withdrawn_at


_WITHDRAW = text(f"""
UPDATE deploys SET withdrawn_at = at FROM {RECEIVED} WHERE deploy_id = :deploy_id RETURNING at
""")


def _members(deploy: StoredDeploy, *names: str) -> dict[str, object]:
    return {name: getattr(deploy, name) for name in ("project_id", *names)}


_USERS = text("""
SELECT x.experiment_id
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment AND x.bound_at IS NOT NULL
  AND (x.deploy_id = :deploy_id OR NOT v.decided AND :commit_sha = ANY(
      x.change || x.treatment_commit || x.control_commit
  ))
ORDER BY x.registered_at, x.experiment_id
""")


def _refuse_if_in_use(connection: Connection, deploy: StoredDeploy) -> None:
    bound = _members(deploy, "environment", "commit_sha", "deploy_id")
    users = connection.execute(_USERS, bound).scalars().all()
    if not users:
        return
    raise Conflict(
        "deploy_in_use",
        f"the deploy is part of {first_names(users, _NAMED)}: its verdict reads what was recorded."
        " Post the commit again with what is right, or close an open experiment and register it"
        " anew",
    )


# What is known of a commit is kept as it was first recorded, because units are placed by it. It is
# forgotten where no unit can have been: the commit has no other deploy, is nobody's base and in no
# experiment, and no event named it. Then the right post tells of it anew.
_FORGET_COMMIT = text("""
DELETE FROM commits AS c
WHERE c.project_id = :project_id AND c.environment = :environment AND c.commit_sha = :commit_sha
  AND NOT EXISTS (
      SELECT FROM deploys AS d
      WHERE d.project_id = c.project_id AND d.environment = c.environment
        AND d.withdrawn_at IS NULL AND d.deploy_id <> :deploy_id
        AND c.commit_sha IN (d.commit_sha, d.base_commit)
  )
  AND NOT EXISTS (
      SELECT FROM commits AS other
      WHERE other.project_id = c.project_id AND other.environment = c.environment
        AND other.commit_sha <> c.commit_sha
        AND (other.base = c.commit_sha OR c.commit_sha = ANY(other.changes))
  )
  AND NOT EXISTS (
      SELECT FROM experiments AS x
      WHERE x.project_id = c.project_id AND x.environment = c.environment
        AND c.commit_sha = ANY(x.change || x.treatment_commit || x.control_commit)
  )
  AND NOT EXISTS (
      SELECT FROM runtime_events AS e
      WHERE e.project_id = c.project_id AND e.environment = c.environment
        AND e.received_at >= c.recorded_at
        AND (starts_with(c.commit_sha, e.commit_sha) OR starts_with(e.commit_sha, c.commit_sha))
  )
""")
# Its ids likewise, where nothing of the project is known by them.
_FORGET_IDS = text("""
DELETE FROM commit_ids AS k
WHERE k.project_id = :project_id AND k.commit_sha = :commit_sha
  AND NOT EXISTS (
      SELECT FROM commits AS c
      WHERE c.project_id = k.project_id
        AND (k.commit_sha IN (c.commit_sha, c.base) OR k.commit_sha = ANY(c.changes))
  )
  AND NOT EXISTS (
      SELECT FROM deploys AS d
      WHERE d.project_id = k.project_id AND d.withdrawn_at IS NULL AND d.deploy_id <> :deploy_id
        AND k.commit_sha IN (d.commit_sha, d.base_commit)
  )
  AND NOT EXISTS (
      SELECT FROM experiments AS x
      WHERE x.project_id = k.project_id
        AND k.commit_sha = ANY(x.change || x.treatment_commit || x.control_commit)
  )
  AND NOT EXISTS (
      SELECT FROM runtime_events AS e
      WHERE e.project_id = k.project_id AND e.received_at >= k.recorded_at
        AND (starts_with(k.id, e.commit_sha) OR starts_with(e.commit_sha, k.id))
  )
""")

# The graph that was current before becomes it again, unless a later deploy stands on this deploy's.
_RESTORE_GRAPH = text("""
UPDATE projects AS p SET current_graph_id = :graph_before
WHERE p.project_id = :project_id AND p.current_graph_id = :graph_id
  AND NOT EXISTS (
      SELECT FROM deploys AS d
      WHERE d.project_id = p.project_id AND d.withdrawn_at IS NULL AND d.graph_id = :graph_id
        AND d.recorded_at > :recorded_at
  )
""")
