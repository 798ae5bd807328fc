"""The page of a project's deliveries: the last of each webhook, and a trial."""

from sqlalchemy import Connection
from starlette.requests import Request

from api.dashboard.page.form import Form, FormPage, Reply
from storage.tenants.settings import read_settings
from storage.tenants.sign_ins import Visitor
from storage.tenants.webhook import Webhook
from storage.upkeep.place_announcements import announce_test
from storage.verdicts.deliveries import Delivery, list_deliveries

_GONE = "Nothing was sent: the project has no such webhook any more."
_SHOWN = 50

Deliveries = tuple[list[Webhook], list[Delivery]]


def _read(connection: Connection, visitor: Visitor) -> Deliveries:
    webhooks = list(read_settings(connection, visitor.project_id).webhooks)
    return webhooks, list_deliveries(connection, visitor.project_id, arrived=True, limit=_SHOWN)


def _try(connection: Connection, visitor: Visitor, form: Form) -> Reply | None:
    """Sends a delivery that only tries a webhook."""
    known = announce_test(connection, visitor.project_id, form.text("target"))
    return None if known else Reply(status=409, note=_GONE)


def _show(_: Request, read: Deliveries, __: Reply) -> dict[str, object]:
    webhooks, listed = read
    names = {webhook.target: webhook.shown for webhook in webhooks}
    return {"webhooks": webhooks, "names": names, "deliveries": listed}


DELIVERIES = FormPage(template="settings/deliveries.html", read=_read, save=_try, show=_show)
