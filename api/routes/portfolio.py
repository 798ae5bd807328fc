"""`GET /v1/reward/portfolio`: the standing build against a hold-back, beside the claims."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.caller import Reader
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.documentation import reading
from api.wire.shape import Shape
from domain.registration import PRODUCTION
from storage.views.portfolio import read_portfolio

router = APIRouter(tags=["reward"])


class PortfolioMeasurement(Shape):
    """An experiment on a part of the changes; its effects are relative to control."""

    experiment_id: str
    change: list[str]
    title: str | None = Field(description="The first line of its commit's message.")
    verdict: str
    decided: bool
    claimed: float | None = Field(description="The contract's lift; null in an abstention.")
    effect: float | None = Field(description="The best estimate.")
    basis: Literal["open", "at_decision", "after_decision"] | None
    counted: bool = Field(description="Whether it is a keep that the sums hold.")


class PortfolioShare(Shape):
    """The share of units that the hold-back needs."""

    share: float
    lift: float = Field(description="The lift that is looked for: the sum of the claims, or 10 %.")
    days: float | None = Field(
        description="Days until it is found in 80 % of runs; null before any traffic is known."
    )


class PortfolioEffect(Shape):
    """The effect of all changes together, relative to the hold-back."""

    relative: float | None
    interval: tuple[float, float] | None
    basis: Literal["open", "at_decision", "after_decision"]
    units: int
    as_of: datetime | None


class PortfolioAnswer(Shape):
    """The newest portfolio; before any is registered, the portfolio that could be begun."""

    as_of: datetime
    environment: str
    metric: str
    standing: str | None = Field(description="The build that most users have now.")
    standing_deploy: str | None = Field(description="The deploy to register.")
    treatment: str | None = Field(description="The build that is compared with the hold-back.")
    hold_back: str | None = Field(
        description="Before a portfolio is registered the build that users had 7 days ago."
    )
    hold_back_share: float | None = Field(description="As last declared.")
    share: PortfolioShare
    moved_on: bool = Field(
        description="Whether users have a later build: the units of that one are not compared."
    )
    attempt: int
    changes: int = Field(description="How many changes the hold-back lacks.")
    unmeasured: list[str] = Field(description="Those that no experiment of their own measured.")
    measurements: list[PortfolioMeasurement] = Field(description="The newest first.")
    kept: int
    claimed: float = Field(description="The sum of what the keeps claimed.")
    expected: float = Field(description="The sum of their best estimates.")
    experiment_id: str | None = Field(description="Null before it is registered.")
    starts_at: datetime | None
    verdict: str | None
    decided: bool | None
    follow_up: Literal["running", "final", "stopped"] | None = Field(
        description="The week after its decision: null before that."
    )
    effect: PortfolioEffect | None


@router.get(
    "/v1/reward/portfolio",
    summary="Read the portfolio",
    responses={200: {"model": PortfolioAnswer}},
    openapi_extra=reading(problems=["unknown_commit", "ambiguous_commit"]),
)
async def get_portfolio(
    request: Request,
    caller: Reader,
    *,
    environment: Annotated[
        str, Query(min_length=1, max_length=64, pattern=r"^[^\x00]*$")
    ] = PRODUCTION,
    metric: Annotated[str | None, Query(pattern="^[a-z0-9_]{1,64}$")] = None,
    hold_back: Annotated[
        str | None, Query(pattern="^[0-9a-fA-F]{7,64}$", description="A commit.")
    ] = None,
) -> Response:
    """Return the effect of all changes since a hold-back, and the sum of their claims."""
    as_of = datetime.now(UTC)

    def reading_portfolio(connection: Connection) -> dict[str, Any]:
        return read_portfolio(
            connection,
            caller.project_id,
            as_of=as_of,
            environment=environment,
            metric=metric,
            hold_back=None if hold_back is None else hold_back.lower(),
        ).document(as_of=as_of)

    return answer(await runtime(request).store.run(reading_portfolio))
