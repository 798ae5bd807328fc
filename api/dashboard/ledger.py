"""The page of the ledger: the sums over a project's verdicts of 28 days."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.dashboard.page.markup import page
from api.dashboard.page.visit import read_for_visitor
from domain.ledger.account import account_of
from storage.tenants.sign_ins import Visitor
from storage.views.ledger import read_entries

_STANDS = {"yes": "stands", "not_yet": "not yet known", "no": "does not stand"}


async def get_ledger(request: Request) -> Response:
    """Return the page."""
    as_of = datetime.now(UTC)

    def reading(connection: Connection, visitor: Visitor) -> dict[str, Any]:
        return account_of(read_entries(connection, visitor.project_id, as_of=as_of), as_of=as_of)

    _, ledger = await read_for_visitor(request, reading)
    return page(
        request,
        "ledger.html",
        ledger=ledger,
        stands=_STANDS,
    )
