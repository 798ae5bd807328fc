"""`POST /v1/reward/{experiment_id}/close`: an experiment ends by hand."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.routes.verdicts import contract_answer, known_id
from api.runtime.caller import Registrar
from api.runtime.state import runtime
from api.wire.body import body_of
from api.wire.documentation import answered, json_body, reading
from api.wire.shape import Shape
from domain.contract import Contract
from storage.experiments.actions import close
from storage.verdicts.publication import PublishedVerdict
from storage.views.published import read_verdict

router = APIRouter(tags=["reward"])


class NoMembers(Shape):
    """An empty object."""


@router.post(
    "/v1/reward/{experiment_id}/close",
    summary="Close an experiment",
    responses={200: answered(Contract)},
    openapi_extra=reading(
        body=json_body(NoMembers), required=False, problems=["unknown_experiment"]
    ),
)
async def post_close(
    request: Request,
    caller: Registrar,
    experiment_id: str,
    _: Annotated[NoMembers, Depends(body_of(NoMembers, optional=True))],
) -> Response:
    """End an experiment by hand: it is decided at its last look, without a verdict by hand."""

    def closing(connection: Connection) -> PublishedVerdict:
        by = caller.actor(connection)
        close(connection, caller.project_id, known_id(experiment_id), by=by)
        return read_verdict(connection, caller.project_id, experiment_id)

    return contract_answer(await runtime(request).store.run(closing))
