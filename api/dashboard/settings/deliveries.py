"""The page of a project's deliveries: the last of each webhook, and a trial."""

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.dashboard.page.form import posted
from api.dashboard.page.markup import page
from api.dashboard.page.visit import read_for_visitor
from api.dashboard.settings.simple import READ_ONLY
from storage.tenants.settings import read_settings
from storage.tenants.sign_ins import Role, Visitor
from storage.tenants.webhook import Webhook
from storage.verdicts.announcements import announce_test
from storage.verdicts.deliveries import Delivery, list_deliveries

_PATH = "/dashboard/settings/deliveries"
_GONE = "Nothing was sent: the project has no such webhook any more."
_SHOWN = 50

Deliveries = tuple[list[Webhook], list[Delivery]]


async def get_deliveries(request: Request) -> Response:
    """Return the last deliveries of a project."""
    _, deliveries = await read_for_visitor(request, _read)
    return _page(request, deliveries)


async def post_deliveries(request: Request) -> Response:
    """Send a delivery that only tries a webhook."""
    form = await posted(request)

    def sending(connection: Connection, visitor: Visitor) -> tuple[str | None, Deliveries]:
        note = None
        if visitor.role is not Role.OWNER:
            note = READ_ONLY
        elif not announce_test(connection, visitor.project_id, form.text("target")):
            note = _GONE
        return note, _read(connection, visitor)

    visitor, (note, deliveries) = await read_for_visitor(request, sending)
    if note is None:
        return RedirectResponse(f"{_PATH}?saved", status_code=303)
    status = 409 if visitor.role is Role.OWNER else 403
    return _page(request, deliveries, note=note, status=status)


def _read(connection: Connection, visitor: Visitor) -> Deliveries:
    webhooks = list(read_settings(connection, visitor.project_id).webhooks)
    return webhooks, list_deliveries(connection, visitor.project_id, arrived=True, limit=_SHOWN)


def _page(
    request: Request, deliveries: Deliveries, *, note: str | None = None, status: int = 200
) -> Response:
    webhooks, listed = deliveries
    return page(
        request,
        "settings/deliveries.html",
        status=status,
        webhooks=webhooks,
        names={webhook.target: webhook.shown for webhook in webhooks},
        deliveries=listed,
        note=note,
        saved="saved" in request.query_params,
    )
