"""`GET /v1/reward/effects`: the effects of all changes of an actor, as a single document."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.caller import Reader
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.documentation import answered, reading
from api.wire.shape import NO_NUL, named
from domain.ledger.effects import ActorEffects
from storage.ledger.effects import read_actor_effects

router = APIRouter(tags=["reward"])


@router.get(
    "/v1/reward/effects",
    summary="Read the effects of an actor's changes",
    responses={200: answered(ActorEffects)},
    openapi_extra=reading(),
)
async def get_effects(
    request: Request,
    caller: Reader,
    *,
    actor: Annotated[
        str | None,
        Query(max_length=256, pattern=NO_NUL, description="As the ledger names it; default: all."),
        AfterValidator(named),
    ] = None,
) -> Response:
    """Return the effects of all changes of an actor, those that were stopped included."""
    as_of = datetime.now(UTC)

    def listing(connection: Connection) -> ActorEffects:
        return read_actor_effects(connection, caller.project_id, actor, as_of=as_of)

    return answer(await runtime(request).store.run(listing))
