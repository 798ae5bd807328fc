"""The pages of the ledger: the sums over a project's verdicts, and its portfolio."""

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from api.dashboard.page.markup import page
from api.dashboard.page.visit import read_for_visitor
from domain.ledger.sentences import portfolio_headline, portfolio_notes, portfolio_steps
from domain.wording.effect import MOMENTS
from storage.ledger.entries import read_ledger
from storage.ledger.portfolio import read_portfolio

_STANDS = {"yes": "stands", "not_yet": "not yet known", "no": "does not stand"}


async def get_ledger(request: Request) -> Response:
    """Return the page of the sums over the verdicts of 30 days."""
    as_of = datetime.now(UTC)
    _, ledger = await read_for_visitor(
        request,
        lambda connection, visitor: read_ledger(connection, visitor.project_id, as_of=as_of),
    )
    return page(request, "ledger.html", ledger=ledger, stands=_STANDS)


async def get_portfolio(request: Request) -> Response:
    """Return the page of the standing build against a hold-back, beside the claims."""
    as_of = datetime.now(UTC)
    _, portfolio = await read_for_visitor(
        request,
        lambda connection, visitor: read_portfolio(connection, visitor.project_id, as_of=as_of),
    )
    return page(
        request,
        "portfolio.html",
        portfolio=portfolio,
        headline=portfolio_headline(portfolio),
        notes=portfolio_notes(portfolio),
        steps=[step.partition(": ") for step in portfolio_steps(portfolio)],
        moments=MOMENTS,
    )
