"""The page of the portfolio: the standing build against a hold-back, beside the claims."""

from datetime import UTC, datetime

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.dashboard.page.markup import page
from api.dashboard.page.visit import read_for_visitor
from domain.ledger.portfolio import Portfolio
from domain.ledger.sentences import portfolio_headline, portfolio_notes, portfolio_steps
from domain.wording.effect import MOMENTS
from storage.ledger.portfolio import read_portfolio
from storage.tenants.sign_ins import Visitor


async def get_portfolio(request: Request) -> Response:
    """Return the page."""
    as_of = datetime.now(UTC)

    def reading(connection: Connection, visitor: Visitor) -> Portfolio:
        return read_portfolio(connection, visitor.project_id, as_of=as_of)

    _, portfolio = await read_for_visitor(request, reading)
    return page(
        request,
        "portfolio.html",
        portfolio=portfolio,
        headline=portfolio_headline(portfolio),
        notes=portfolio_notes(portfolio),
        steps=[step.partition(": ") for step in portfolio_steps(portfolio)],
        moments=MOMENTS,
    )
