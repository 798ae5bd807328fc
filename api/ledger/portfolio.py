"""`GET /v1/reward/portfolio`: the standing build against a hold-back, beside the claims."""

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
from api.wire.shape import Commit, EnvironmentInQuery, named
from domain.ledger.portfolio import Portfolio
from domain.registration import PRODUCTION
from storage.ledger.portfolio import read_portfolio

router = APIRouter(tags=["reward"])


@router.get(
    "/v1/reward/portfolio",
    summary="Read the portfolio",
    responses={200: answered(Portfolio)},
    openapi_extra=reading(problems=["unknown_commit", "ambiguous_commit"]),
)
async def get_portfolio(
    request: Request,
    caller: Reader,
    *,
    environment: Annotated[EnvironmentInQuery, Query()] = PRODUCTION,
    metric: Annotated[str | None, Query(pattern="^[a-z0-9_]{1,64}$"), AfterValidator(named)] = None,
    hold_back: Annotated[Commit | None, Query(description="A commit.")] = None,
) -> Response:
    """Return the effect of all changes since a hold-back, and the sum of their claims."""
    as_of = datetime.now(UTC)

    def reading_portfolio(connection: Connection) -> Portfolio:
        return read_portfolio(
            connection,
            caller.project_id,
            as_of=as_of,
            environment=environment,
            metric=metric,
            hold_back=None if hold_back is None else hold_back.lower(),
        )

    return answer(await runtime(request).store.run(reading_portfolio))
