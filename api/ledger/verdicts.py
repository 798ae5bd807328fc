"""`GET /v1/reward/ledger`: the sums over the project's verdicts of 30 days."""

from datetime import UTC, datetime

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.keyring import admitted
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.documentation import PlainRoute, answered, reading
from domain.ledger.account import Ledger
from storage.ledger.entries import read_ledger
from storage.tenants.keys import READING_KINDS

# It is plain, as the address of a verdict is: of two plain routes, that without a pattern answers.
router = APIRouter(route_class=PlainRoute, tags=["reward"])


@router.get(
    "/v1/reward/ledger",
    summary="Read the ledger",
    responses={200: answered(Ledger)},
    openapi_extra=reading(),
)
async def get_ledger(request: Request) -> Response:
    """Return the sums over the verdicts of 30 days, and which keeps stand.

    It enters no verdict.
    """
    shared = runtime(request)
    caller = await admitted(request, *READING_KINDS)
    as_of = datetime.now(UTC)

    def ledger(connection: Connection) -> Ledger:
        return read_ledger(connection, caller.project_id, as_of=as_of)

    return answer(await shared.store.run(ledger))
