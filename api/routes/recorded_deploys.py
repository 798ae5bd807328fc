"""Recorded deploys: their list, and the withdrawal of a deploy that was posted by mistake."""

import re
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.caller import Writer
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.documentation import answered, reading
from api.wire.shape import EnvironmentInQuery
from domain.document import Document, Moment
from storage.experiments.deploy_record import DeployRecord
from storage.experiments.withdrawal import withdraw_deploy
from storage.postgres.refusal import Missing
from storage.views.deploys import list_deploys

router = APIRouter(tags=["deploys"])

_DEPLOY_ID = re.compile("dep_[0-9a-f]{20}")


class WithdrawnDeploy(Document, frozen=True, kw_only=True):
    """A deploy that was withdrawn."""

    deploy: DeployRecord
    withdrawn_at: Moment


@router.delete(
    "/v1/deploys/{deploy_id}",
    summary="Withdraw a deploy that was posted by mistake",
    responses={200: answered(WithdrawnDeploy)},
    openapi_extra=reading(problems=["unknown_deploy", "deploy_in_use"]),
)
async def delete_deploy(request: Request, caller: Writer, deploy_id: str) -> Response:
    """Withdraw a record while no experiment rests on it; the same post is then a new deploy."""
    if not _DEPLOY_ID.fullmatch(deploy_id):
        raise Missing("unknown_deploy", "there is no such deploy")
    deploy, withdrawn_at = await runtime(request).store.run(
        lambda connection: withdraw_deploy(
            connection, caller.project_id, deploy_id, by=caller.actor(connection)
        )
    )
    return answer({"deploy": deploy, "withdrawn_at": withdrawn_at})


class DeployList(Document, frozen=True, kw_only=True):
    """A page of a project's deploys, the newest first."""

    deploys: list[DeployRecord]
    next_cursor: str | None


@router.get(
    "/v1/deploys",
    summary="List deploys",
    responses={200: answered(DeployList)},
    openapi_extra=reading(problems=["unknown_deploy"]),
)
async def get_deploys(
    request: Request,
    caller: Writer,
    *,
    environment: Annotated[EnvironmentInQuery | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[
        str | None, Query(pattern="^dep_[0-9a-f]{20}$", description="`next_cursor` of a page.")
    ] = None,
) -> Response:
    """List the project's deploys with their commits, the newest first."""
    deploys = await runtime(request).store.run(
        # A row more than shown says that there is a next page.
        lambda connection: list_deploys(
            connection, caller.project_id, environment=environment, limit=limit + 1, before=cursor
        )
    )
    page = deploys[:limit]
    return answer(
        {"deploys": page, "next_cursor": page[-1].deploy_id if len(deploys) > limit else None}
    )
