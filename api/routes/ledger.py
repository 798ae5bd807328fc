"""`GET /v1/reward/ledger`: the sums over the project's verdicts of 28 days."""

from datetime import UTC, datetime
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.keyring import admitted
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.documentation import PlainRoute, reading
from api.wire.shape import Shape
from domain.ledger.account import account_of
from storage.tenants.keys import READING_KINDS
from storage.views.ledger import read_entries

# It is plain, as the address of a verdict is: of two plain routes, that without a pattern answers.
router = APIRouter(route_class=PlainRoute, tags=["reward"])


class LedgerCounts(Shape):
    """How many experiments were judged and kept, and how many keeps may be false."""

    judged: int = Field(description="Experiments with a look in these days, open ones included.")
    kept: int
    rolled_back: int
    expected_false: float = Field(
        description="At most so many keeps are false on average: half of each judged experiment's"
        " level, summed; never more than there are keeps."
    )
    standing: int = Field(description="Keeps that stand.")


class LedgerActor(LedgerCounts):
    """The counts of who asked for the experiments, or made their changes."""

    actor: str | None = Field(
        description="As the registration names it, else the deploy's commit; else its author."
    )


class LedgerWeek(LedgerCounts):
    """The counts of a week."""

    week: str = Field(description="Its Monday.")


class LedgerMetric(Shape):
    """The keeps of a metric: the sum of their relative effects."""

    metric: str
    kept: int
    claimed: float = Field(description="The sum of the measured lifts when they were decided.")
    measured: int = Field(description="Keeps with an effect after the decision.")
    claimed_of_measured: float = Field(description="Of them alone.")
    after_decision: float = Field(
        description="Their effects on units that came after the decision, summed."
    )
    standard_error: float = Field(description="Of after_decision.")


class LedgerKeep(Shape):
    """A keep, with its effects relative to control."""

    experiment_id: str
    metric: str
    treatment_commit: str | None
    title: str | None = Field(description="The first line of the commit's message.")
    actor: str | None
    decided_at: datetime
    stands: Literal["yes", "not_yet", "no"] = Field(
        description="not_yet: no follow-up ran to its end, and the test stopped where it crossed."
    )
    log_e: float | None = Field(
        description="Logarithm of the e-value, the units after the decision included."
    )
    claimed: float | None
    at_decision: float | None
    after_decision: float | None


class Ledger(LedgerCounts):
    """The sums over a project's verdicts of the last days."""

    as_of: datetime
    days: int
    false_discovery_rate: float = Field(
        description="Of the keeps that stand, so many are false on average, at most."
    )
    actors: list[LedgerActor]
    weeks: list[LedgerWeek]
    metrics: list[LedgerMetric]
    keeps: list[LedgerKeep] = Field(description="The newest 200, the last first.")
    left_out: int = Field(description="Keeps that are not listed.")


@router.get(
    "/v1/reward/ledger",
    summary="Read the ledger",
    responses={200: {"model": Ledger}},
    openapi_extra=reading(),
)
async def get_ledger(request: Request) -> Response:
    """Return the sums over the verdicts of 28 days, and which keeps stand.

    It enters no verdict.
    """
    shared = runtime(request)
    caller = await admitted(shared.keyring, request, *READING_KINDS)
    as_of = datetime.now(UTC)

    def account(connection: Connection) -> dict[str, Any]:
        return account_of(read_entries(connection, caller.project_id, as_of=as_of), as_of=as_of)

    return answer(await shared.store.run(account))
