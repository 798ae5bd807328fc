"""The page of the ledger: the sums over a project's verdicts of 28 days."""

from datetime import UTC, datetime

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.dashboard.page.markup import page
from api.dashboard.page.visit import read_for_visitor
from domain.ledger.account import Ledger, ledger_of
from storage.ledger.entries import read_entries
from storage.tenants.sign_ins import Visitor

_STANDS = {"yes": "stands", "not_yet": "not yet known", "no": "does not stand"}


async def get_ledger(request: Request) -> Response:
    """Return the page."""
    as_of = datetime.now(UTC)

    def reading(connection: Connection, visitor: Visitor) -> Ledger:
        return ledger_of(read_entries(connection, visitor.project_id, as_of=as_of), as_of=as_of)

    _, ledger = await read_for_visitor(request, reading)
    return page(
        request,
        "ledger.html",
        ledger=ledger,
        stands=_STANDS,
    )
