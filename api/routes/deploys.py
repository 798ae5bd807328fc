"""`/v1/deploys`: records commits that were deployed, lists them, and returns the latest."""

import re
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query
from pydantic import AfterValidator, Discriminator, Field, Tag, field_serializer
from pydantic_core import PydanticCustomError
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.routes.static_graphs import EXAMPLE as GRAPH_EXAMPLE
from api.routes.static_graphs import GRAPH_BYTES, FilePath, StaticGraph
from api.runtime.address import public_address
from api.runtime.caller import Writer
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.body import apart, body_of
from api.wire.documentation import answered, json_body, reading
from api.wire.moment import Moment
from api.wire.problem import Fault, invalid
from api.wire.shape import (
    NO_VALUE,
    Actor,
    BaseCommit,
    Commit,
    Environment,
    EnvironmentInQuery,
    LongList,
    OpenShape,
    PatchId,
    Shape,
    WebAddress,
    by_form,
)
from domain.absence import NOTHING_RULE, is_nothing, is_null
from domain.document import Document, time_text
from storage.experiments.deploy_record import DeployRecord, PostedCommit, PostedDiff
from storage.experiments.deploys import DeployRequest, RecordedDeploy, last_deploy, record_deploy
from storage.verdicts.announcements import announce_base_moves

router = APIRouter(tags=["deploys"])

_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?", re.ASCII)


class DeployedCommit(Shape):
    """The commit that was deployed."""

    sha: Commit
    message: Annotated[str, Field(max_length=65_536)] | None = None
    author: Annotated[str, Field(max_length=256)] | None = None
    branch: Annotated[str, Field(max_length=256)] | None = None
    url: WebAddress | None = None
    committed_at: Moment | None = None
    pull_request: Annotated[int, Field(ge=1)] | WebAddress | None = None
    patch_id: PatchId | None = Field(
        default=None, description="`git patch-id --stable` of what it changes."
    )
    actor: Actor | None = Field(default=None, description="Who, or which agent, made the change.")
    changes: Annotated[list[Commit], Field(min_length=1, max_length=10_000)] | None = Field(
        default=None, description="Commits that this commit brings; by default itself."
    )
    reverts: Annotated[list[Commit], Field(min_length=1, max_length=10_000)] | None = Field(
        default=None,
        description="Commits that it takes back, which may be among those that it brings.",
    )

    @field_serializer("committed_at")
    def _in_utc(self, time: datetime | None) -> str | None:
        return None if time is None else time_text(time)


class ChangedFile(OpenShape):
    """A file of a diff; patches and addresses are dropped, source code is never stored."""

    filename: FilePath
    status: Annotated[str, Field(min_length=1, max_length=32)]
    previous_filename: FilePath | None = None
    additions: Annotated[int, Field(ge=0)] | None = None
    deletions: Annotated[int, Field(ge=0)] | None = None


class NamedCommit(OpenShape):
    """A commit as GitHub's answers name it."""

    sha: BaseCommit


class Diff(OpenShape):
    """GitHub's compare answer, or just these two of its members."""

    base_commit: (
        Annotated[
            Annotated[BaseCommit, Tag("<text>")] | Annotated[NamedCommit, Tag("<object>")],
            Discriminator(by_form),
        ]
        | None
    ) = None
    files: LongList[ChangedFile] = Field(default=[])

    def document(self) -> PostedDiff:
        """Returns the stored part of the diff."""
        posted = self.base_commit
        base = posted.sha if isinstance(posted, NamedCommit) else posted
        files = [file.model_dump(exclude_none=True) for file in self.files]
        named = {} if base is None or is_null(base) else {"base_commit": base}
        return msgspec.convert({**named, "files": files}, PostedDiff)


def _told_apart(share: float) -> float:
    if share not in (0, 1) and not 1e-6 <= share <= 1 - 1e-6:
        raise PydanticCustomError("out_of_range", "must be 0, 1, or a millionth from both at least")
    return share


class Deploy(Shape):
    """A deploy: commit metadata, graph and diff."""

    commit: DeployedCommit
    environment: Environment | None = Field(default=None, description="By default `production`.")
    deployed_at: Moment | None = Field(default=None, description="By default now.")
    graph: StaticGraph | None = None
    diff: Diff | None = None
    allocation: Annotated[float, Field(ge=0, le=1), AfterValidator(_told_apart)] | None = Field(
        default=None, description="Share of units that the router sends to this commit."
    )

    def request(self, idempotency_key: str | None) -> DeployRequest:
        """Returns the deploy as the store takes it, with its slow parts already computed."""
        wanted = DeployRequest(
            environment=self.environment or PRODUCTION,
            commit=msgspec.convert(self.commit.model_dump(exclude_none=True), PostedCommit),
            deployed_at=self.deployed_at,
            graph=None if self.graph is None else self.graph.document,
            diff=None if self.diff is None else self.diff.document(),
            allocation=self.allocation,
            idempotency_key=idempotency_key,
        )
        wanted.prepare()
        return wanted


class DeployReceipt(Document, frozen=True, kw_only=True):
    """The answer to a deploy."""

    deploy: DeployRecord
    dashboard_url: str


class LastDeploy(Document, frozen=True, kw_only=True):
    """The latest deploy of an environment, with its graph."""

    deploy: DeployRecord
    graph: dict[str, Any] | None


PRODUCTION = "production"
_EXAMPLES = {
    "the least": {"commit": {"sha": "4f2a9c1d"}},
    "a canary": {
        "commit": {"sha": "4f2a9c1d", "message": "Shorter checkout", "branch": "main"},
        "environment": "production",
        "allocation": 0.1,
        "graph": GRAPH_EXAMPLE,
        "diff": {
            "base_commit": "9e107d9d",
            "files": [{"filename": "lib/cart.ts", "status": "modified"}],
        },
    },
}


@router.post(
    "/v1/deploys",
    status_code=201,
    summary="Record a deploy",
    responses={
        200: answered(DeployReceipt) | {"description": "The same deploy had been posted before."},
        201: answered(DeployReceipt),
    },
    openapi_extra=reading(
        body=json_body(Deploy),
        examples=_EXAMPLES,
        problems=["ambiguous_commit", "idempotency_conflict", "deploy_conflict"],
        parameters=[
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "Makes a retry harmless.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            }
        ],
    ),
)
async def post_deploy(
    request: Request,
    caller: Writer,
    deploy: Annotated[Deploy, Depends(body_of(Deploy, limit=GRAPH_BYTES))],
) -> Response:
    """Record that a commit was put before users; experiments that wait for it begin."""
    shared, key = runtime(request), _idempotency_key(request)
    wanted = await apart(lambda: deploy.request(key))

    def recording(connection: Connection) -> RecordedDeploy:
        place = (connection, caller.project_id, wanted.environment)
        announce = partial(announce_base_moves, *place)
        return record_deploy(connection, caller.project_id, wanted, announce=announce)

    recorded = await shared.store.run_in_turn(caller.project_id, recording)
    return answer(
        {
            "deploy": recorded.record,
            "dashboard_url": f"{public_address(request, shared.settings)}"
            f"/dashboard/deploys/{recorded.record.deploy_id}",
        },
        status=200 if recorded.replayed else 201,
        headers={"Idempotent-Replayed": "true"} if recorded.replayed else None,
    )


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    code, detail = "invalid_key", "must be 1 to 255 printable ASCII characters"
    if is_nothing(key):
        code, detail = NO_VALUE, NOTHING_RULE
    elif _IDEMPOTENCY_KEY.fullmatch(key):
        return key
    raise invalid([Fault(at="Idempotency-Key", code=code, detail=detail, place="header")])


@router.get(
    "/v1/deploys/last",
    summary="Read the latest deploy",
    responses={200: answered(LastDeploy)},
    openapi_extra=reading(problems=["no_deploy"]),
)
async def get_last_deploy(
    request: Request,
    caller: Writer,
    *,
    environment: Annotated[
        EnvironmentInQuery, Query(description="Omit it only if production is intended.")
    ] = PRODUCTION,
    standing: Annotated[
        bool,
        Query(
            description="The deploy of the build that users have, by deploys and by what was seen."
            " A change is based on it."
        ),
    ] = False,
) -> Response:
    """Return the deploy of an environment with the greatest `deployed_at`, and its graph."""
    deploy, graph = await runtime(request).store.run(
        lambda connection: last_deploy(
            connection, caller.project_id, environment, standing=standing
        )
    )
    return answer({"deploy": deploy, "graph": None if graph is None else msgspec.Raw(graph)})
