"""Deploys: which commit was put before users when, on what base, for what share of units."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, or_, select, text
from sqlalchemy.dialects.postgresql import insert

from storage.experiments.binding import bind_waiting
from storage.experiments.commit_ids import (
    commits_meant,
    commits_of,
    recognize_awaited,
    remember_commit_ids,
)
from storage.experiments.deploy_record import (
    DeployRecord,
    PostedCommit,
    PostedDiff,
    StoredDeploy,
    changed_files,
    read_deploys,
)
from storage.experiments.graphs import (
    Graph,
    current_graph_id,
    document_digest,
    graph_text,
    routes_reaching,
    store_graph,
)
from storage.experiments.histories import remember_commit
from storage.experiments.serving import AHEAD, read_serving, standing_commit
from storage.postgres.refusal import Conflict, Invalid, Missing
from storage.schema.clock import RECEIVED
from storage.schema.tables import deploys
from storage.tenants.settings import lock_project

# GitHub's compare answer names at most so many files; a longer list is git's own, and whole.
_FILES_CAP = 300
NOT_WITHDRAWN: ColumnElement[bool] = deploys.c.withdrawn_at.is_(None)
# The SQL of a commit's title, where `d` is its deploy: the first line of its message.
TITLE = (
    r"""nullif(left(split_part(btrim(d.commit ->> 'message', E' \t\r\n'), E'\n', 1), 200), '')"""
)


@dataclass(frozen=True, kw_only=True)
class DeployRequest:
    """A deploy as posted, its form checked; times in UTC, commit ids in lower case."""

    environment: str
    commit: PostedCommit
    deployed_at: datetime | None
    graph: Mapping[str, Any] | None
    diff: PostedDiff | None
    allocation: float | None
    idempotency_key: str | None

    @cached_property
    def stored_graph(self) -> Graph | None:
        """The graph as it is stored."""
        return None if self.graph is None else Graph.of(self.graph)

    @property
    def named_base(self) -> str | None:
        """The base, as it is written."""
        return (self.diff or PostedDiff()).get("base_commit")

    @property
    def names_all_files(self) -> bool:
        """Whether its diff names all files that changed."""
        return len((self.diff or PostedDiff()).get("files", ())) != _FILES_CAP

    def prepare(self) -> None:
        """Computes the slow parts of a large graph before any lock is taken."""
        _ = self.stored_graph, self.digest

    @cached_property
    def digest(self) -> bytes:
        """What tells the same deploy posted again from another deploy."""
        return document_digest(
            {
                "environment": self.environment,
                "commit": dict(self.commit),
                "deployed_at": self.deployed_at.isoformat() if self.deployed_at else None,
                "graph": dict(self.graph) if self.graph else None,
                "diff": dict(self.diff) if self.diff else None,
                "allocation": self.allocation,
            }
        )


@dataclass(kw_only=True)
class Receipt:
    """What a transaction records of an environment before it takes its time of receipt.

    Attributes:
        at: The time that stands for it until then.
    """

    at: datetime
    commits: set[str] = field(default_factory=set[str])
    ids: set[str] = field(default_factory=set[str])
    deploys: list[str] = field(default_factory=list[str])
    experiments: list[str] = field(default_factory=list[str])

    def receive(self, connection: Connection, project_id: int, environment: str) -> datetime:
        """Gives all of it the time of its receipt, the last step of the transaction."""
        keys: dict[str, Any] = {name: [*getattr(self, name)] for name in _KEYS}
        place = {"project_id": project_id, "environment": environment, "recorded_at": self.at}
        return connection.execute(_RECEIVE, {**place, **keys}).scalar_one()


@dataclass(frozen=True, kw_only=True)
class RecordedDeploy:
    """A deploy's record; `replayed` when the same deploy had been posted before."""

    record: DeployRecord
    replayed: bool


def record_deploy(
    connection: Connection,
    project_id: int,
    request: DeployRequest,
    *,
    announce: Callable[[], object] = lambda: None,
    receipt: Receipt | None = None,
) -> RecordedDeploy:
    """Records a deploy, its commit's lineage and graph, and binds experiments that wait for it.

    Args:
        receipt: Of a transaction that records more, and receives all of it at its end.

    Raises:
        Conflict: The same deploy, or the same idempotency key, was posted with another body; or an
            id begins several commits.
        Invalid: `deployed_at` lies in the future.
    """
    # A single post at a time in a project: each sees the deploys and experiments before it.
    project = lock_project(connection, project_id)
    if (earlier := _posted_before(connection, project_id, request)) is not None:
        return RecordedDeploy(record=earlier.record, replayed=True)
    previous = graph_id = current_graph_id(connection, project_id)
    if request.stored_graph is not None:
        graph_id = store_graph(connection, project_id, request.stored_graph).graph_id
    return _record(
        connection,
        project_id,
        request,
        graph_id=graph_id,
        previous=previous,
        announce=announce,
        receipt=receipt or Receipt(at=project.at),
        is_last=receipt is None,
    )


def _record(
    connection: Connection,
    project_id: int,
    request: DeployRequest,
    *,
    graph_id: str | None,
    previous: str | None,
    announce: Callable[[], object],
    receipt: Receipt,
    is_last: bool,
) -> RecordedDeploy:
    """Records a deploy that was not posted before, as of a time; last comes that of its receipt.

    Nobody sees it before its commit: the pipeline of all projects waits for the last step alone.
    """
    recorded_at = receipt.at
    deployed_at = request.deployed_at or recorded_at
    if deployed_at > recorded_at + AHEAD:
        raise Invalid(
            "in_the_future",
            "more than 2 minutes in the future: leave it out for a deploy of now, and post a"
            " planned deploy when it happens",
            pointer="/deployed_at",
        )

    taken_back = {*request.commit.get("reverts", ())}
    changes = [each for each in request.commit.get("changes", ()) if each not in taken_back]
    written = [request.commit["sha"], request.named_base, *changes]
    known = remember_commit_ids(
        connection, project_id, filter(None, written), recorded_at=recorded_at
    )
    sha = known[request.commit["sha"]]
    named = None if request.named_base is None else known[request.named_base]
    base, assumed = _base(
        connection,
        project_id,
        request.environment,
        sha=sha,
        named=named,
        deployed_at=deployed_at,
        recorded_at=recorded_at,
    )
    remember_commit(
        connection,
        project_id,
        request.environment,
        sha,
        changes=[known[change] for change in changes] or [sha],
        base=base,
        assumed=assumed,
        recorded_at=recorded_at,
    )
    recognize_awaited(connection, project_id, sha)
    (deploy,) = read_deploys(
        connection,
        insert(deploys)
        .values(
            deploy_id=f"dep_{secrets.token_hex(10)}",
            project_id=project_id,
            environment=request.environment,
            commit_sha=sha,
            commit=request.commit,
            base_commit=base,
            base_assumed=assumed,
            deployed_at=deployed_at,
            recorded_at=recorded_at,
            graph_id=graph_id,
            graph_before=previous,
            diff=request.diff,
            allocation=request.allocation,
            affected_routes=_affected_routes(
                connection, project_id, request, graph_id=graph_id, previous=previous, base=base
            ),
            affected_routes_complete=request.names_all_files,
            idempotency_key=request.idempotency_key,
            digest=request.digest,
        )
        .returning(deploys),
    )
    bound: dict[str, str | None] = {}
    # A deploy with a share of 0 starts no experiment.
    if request.allocation != 0:
        bound = bind_waiting(connection, project_id, deploy, bound_at=recorded_at)
    announce()
    receipt.deploys.append(deploy.deploy_id)
    receipt.commits.add(sha)
    receipt.ids.update(filter(None, (*written, *bound.values())))
    receipt.experiments += bound
    record = deploy.record
    if is_last:
        received_at = receipt.receive(connection, project_id, deploy.environment)
        record = replace(record, recorded_at=received_at)
    return RecordedDeploy(record=record, replayed=False)


_KEYS = ("commits", "ids", "deploys", "experiments")
_TIMES = ("recorded_at", "base_recorded_at", "assumed_at")
_TIMES_SET = ", ".join(f"{at} = CASE {at} WHEN :recorded_at THEN at ELSE {at} END" for at in _TIMES)
# Of all that this transaction recorded; a commit or an id may be known longer.
_RECEIVE = text(f"""
WITH received AS MATERIALIZED (SELECT at FROM {RECEIVED}), deploy AS (
    UPDATE deploys SET recorded_at = at FROM received WHERE deploy_id = ANY(:deploys)
), fact AS (
    UPDATE commits SET {_TIMES_SET} FROM received
    WHERE project_id = :project_id AND environment = :environment
      AND commit_sha = ANY(:commits) AND :recorded_at IN ({", ".join(_TIMES)})
), id AS (
    UPDATE commit_ids SET recorded_at = at FROM received
    WHERE project_id = :project_id AND id = ANY(:ids) AND recorded_at = :recorded_at
), experiment AS (
    UPDATE experiments SET bound_at = at, registered_at = CASE registered_at
        WHEN :recorded_at THEN at ELSE registered_at END
    FROM received WHERE experiment_id = ANY(:experiments)
)
SELECT at FROM received
""")


def _posted_before(
    connection: Connection, project_id: int, request: DeployRequest
) -> StoredDeploy | None:
    meant = commits_meant(connection, project_id, request.commit["sha"])
    same = [
        and_(
            deploys.c.environment == request.environment,
            deploys.c.commit_sha.in_([known.commit for known in meant]),
            deploys.c.deployed_at == request.deployed_at,
        )
    ]
    if request.idempotency_key is not None:
        same.append(deploys.c.idempotency_key == request.idempotency_key)
    query = select(deploys).where(deploys.c.project_id == project_id, NOT_WITHDRAWN, or_(*same))
    for deploy in read_deploys(connection, query):
        same_body = deploy.digest == request.digest
        if same_body or deploy.digest == _spelled_as(connection, request, deploy):
            return deploy
        if request.idempotency_key and deploy.idempotency_key == request.idempotency_key:
            raise Conflict(
                "idempotency_conflict", "this Idempotency-Key was used with another deploy"
            )
        raise Conflict(
            "deploy_conflict",
            "this commit was recorded in this environment at this time with another body",
        )
    return None


def _spelled_as(connection: Connection, request: DeployRequest, deploy: StoredDeploy) -> bytes:
    """Returns the digest of a request that writes the commits of a deploy in the same form."""
    written = [deploy.commit["sha"], *deploy.commit.get("changes", ())]
    if deploy.diff is not None and (base := deploy.diff.get("base_commit")) is not None:
        written.append(base)
    asked = [request.commit["sha"], *request.commit.get("changes", ()), request.named_base or ""]
    commits = commits_of(connection, deploy.project_id, {*written, *filter(None, asked)})
    spelling = {commits[each]: each for each in written}

    def spelled(each: str) -> str:
        return spelling.get(commits[each], each)

    commit: PostedCommit = {**request.commit, "sha": spelled(request.commit["sha"])}
    if "changes" in commit:
        commit["changes"] = list(map(spelled, commit["changes"]))
    diff = request.diff
    if diff is not None and request.named_base is not None:
        diff = {**diff, "base_commit": spelled(request.named_base)}
    return replace(request, commit=commit, diff=diff).digest


def _base(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    sha: str,
    named: str | None,
    deployed_at: datetime,
    recorded_at: datetime,
) -> tuple[str | None, bool]:
    """Returns the base of a deploy, and whether it was assumed rather than named."""
    if named is not None:
        return (None if named == sha else named), False
    serving = read_serving(connection, project_id, environment, at=recorded_at, until=deployed_at)
    history = serving.history
    # A commit deployed before keeps its lineage: a ramp step or a rollback is no new history.
    if history.is_recorded(sha):
        base = history.base(sha)
        return base, base is not None and history.named_base(sha) is None
    standing = serving.standing(besides=sha)
    return (None, False) if standing is None else (standing.commit, True)


def _affected_routes(
    connection: Connection,
    project_id: int,
    request: DeployRequest,
    *,
    graph_id: str | None,
    previous: str | None,
    base: str | None,
) -> list[str]:
    """Returns the routes that reach a changed file, in the new graph or in the base's."""
    files = changed_files(request.diff)
    if not files:
        return []
    before = graph_of_commit(connection, project_id, request.environment, base) or previous
    known = sorted({graph for graph in (graph_id, before) if graph is not None})
    return routes_reaching(connection, project_id, known, set(files))


def graph_of_commit(
    connection: Connection, project_id: int, environment: str, commit: str | None
) -> str | None:
    """Returns the identifier of the graph that a commit was last deployed with, if any."""
    return connection.execute(
        select(deploys.c.graph_id)
        .where(
            deploys.c.project_id == project_id,
            deploys.c.environment == environment,
            deploys.c.commit_sha == commit,
            deploys.c.graph_id.is_not(None),
            NOT_WITHDRAWN,
        )
        .order_by(deploys.c.deployed_at.desc())
        .limit(1)
    ).scalar_one_or_none()


def last_deploy(
    connection: Connection, project_id: int, environment: str, *, standing: bool = False
) -> tuple[DeployRecord, str | None]:
    """Returns the deploy with the greatest `deployed_at` of an environment, and its graph's text.

    Args:
        standing: Whether that of the build that users have is asked for: canaries and what
            another build has succeeded are left out.

    Raises:
        Missing: The environment has no such deploy.
    """
    in_environment = deploys.c.environment == environment
    chosen = [deploys.c.project_id == project_id, in_environment, NOT_WITHDRAWN]
    if standing:
        commit = standing_commit(connection, project_id, environment)
        chosen.append(deploys.c.commit_sha == commit)
    newest = (deploys.c.deployed_at.desc(), deploys.c.recorded_at.desc())
    query = select(deploys).where(*chosen).order_by(*newest).limit(1)
    if not (matching := read_deploys(connection, query)):
        raise Missing("no_deploy", "no deploy was recorded in this environment")
    (deploy,) = matching
    graph = None
    if deploy.graph_id is not None:
        graph = graph_text(connection, project_id, deploy.graph_id)
    return deploy.record, graph


# Other environments in which the commit of a waiting experiment x is deployed.
ELSEWHERE = """
ARRAY(
    SELECT DISTINCT d.environment FROM deploys AS d
    WHERE x.deploy_id IS NULL AND d.project_id = x.project_id AND d.environment <> x.environment
      AND d.withdrawn_at IS NULL
      AND d.commit_sha = x.treatment_commit
    ORDER BY d.environment
)
"""
# Whether every deploy of a waiting experiment x's commit in its environment has a share of 0.
UNSHARED = """coalesce(x.deploy_id IS NULL AND (
    SELECT bool_and(coalesce(d.allocation = 0, false)) FROM deploys AS d
    WHERE d.project_id = x.project_id AND d.environment = x.environment
      AND d.withdrawn_at IS NULL AND d.commit_sha = x.treatment_commit
), false)"""
