"""A deploy's record: its posted members, its form in the API, and its row in the store."""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Required, TypedDict

from msgspec import Meta
from sqlalchemy import Connection, Executable

from domain.document import Moment
from storage.postgres.rows import value_of


class PostedCommit(TypedDict, total=False):
    """A commit as it was posted: the members that are known of it."""

    sha: Required[str]
    message: str
    author: str
    branch: str
    url: str
    committed_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    pull_request: int | str
    patch_id: str
    actor: str
    changes: list[str]
    reverts: list[str]


class PostedFile(TypedDict, total=False):
    """A changed file of a diff."""

    filename: Required[str]
    status: str
    previous_filename: str
    additions: int
    deletions: int


class PostedDiff(TypedDict, total=False):
    """The stored part of a diff; `base_commit` is absent where nobody named it."""

    base_commit: str
    files: list[PostedFile]


@dataclass(frozen=True, kw_only=True)
class DeployRecord:
    """A deploy as the API shows it."""

    deploy_id: str
    environment: str
    commit: PostedCommit
    base_commit: str | None
    deployed_at: Moment
    recorded_at: Moment
    graph_id: str | None
    diff: PostedDiff | None
    allocation: float | None
    base_assumed: Annotated[
        bool, Meta(description="Whether the base was assumed rather than posted.")
    ]
    affected_routes: list[str]
    affected_routes_complete: bool


@dataclass(frozen=True, kw_only=True)
class StoredDeploy(DeployRecord):
    """A deploy with the columns that the API does not show (`storage/schema/tables.py`)."""

    project_id: int
    commit_sha: str
    idempotency_key: str | None
    digest: bytes
    withdrawn_at: datetime | None
    graph_before: str | None

    @property
    def record(self) -> DeployRecord:
        """The form in which the API shows it."""
        return DeployRecord(
            **{each.name: getattr(self, each.name) for each in fields(DeployRecord)}
        )


def read_deploys(
    connection: Connection, query: Executable, **parameters: object
) -> list[StoredDeploy]:
    """Returns the deploys of a query that selects all columns of `deploys`."""
    return [value_of(StoredDeploy, row) for row in connection.execute(query, parameters)]


def changed_files(diff: PostedDiff | None) -> list[str]:
    """Returns the names, new and old, of the files that a diff changes."""
    return [
        name
        for file in (diff or PostedDiff()).get("files", ())
        for name in (file["filename"], file.get("previous_filename"))
        if name is not None
    ]
