"""Signing in and out: a one-time link or a project key becomes a cookie, and ends."""

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.dashboard.page.form import posted
from api.dashboard.page.markup import page
from api.dashboard.page.visit import (
    HOME,
    drop_token,
    keep_token,
    page_after,
    require_own_origin,
    token_of,
)
from api.runtime.rate_limit import client_address
from api.runtime.state import runtime
from storage.tenants.keys import is_well_formed
from storage.tenants.sign_ins import (
    Visitor,
    is_link_code,
    sign_in_by_key,
    sign_in_by_link,
    sign_out,
    visitor,
)

_USED = (
    "This link was used before, or its 15 minutes are over."
    " Run deploy-reward dashboard for a new one."
)
_NO_KEY = "This is no project key: one begins with rk_ or ro_ and has 43 characters."
_OTHER_KIND = "This key sends data. Signing in takes a project key (rk_) or a read key (ro_)."
_UNKNOWN = "This project key is unknown or was revoked."


async def get_sign_in(request: Request) -> Response:
    """Return the page on which one signs in."""

    def reading(connection: Connection) -> Visitor | None:
        token = token_of(request)
        return None if token is None else visitor(connection, token)

    request.state.visitor = await runtime(request).store.run(reading)
    return _asking(request, page_after(request.query_params.get("next", "")))


async def post_sign_in(request: Request) -> Response:
    """Exchange the code of a link, or a project key, for a cookie."""
    form = await posted(request)
    limit = runtime(request).rate_limit
    # Which project's proxies to believe is not known yet: who comes through one shares its limit.
    await limit.admit_sign_in(address=client_address(request, ()))
    secret = form.text("secret").strip()
    after = page_after(form.text("next"))
    if (fault := _fault(secret)) is not None:
        return _asking(request, after, fault=fault, status=422)
    await limit.admit_secret()

    def signing_in(connection: Connection) -> str | None:
        by = sign_in_by_link if is_link_code(secret) else sign_in_by_key
        token, before = by(connection, secret), token_of(request)
        if token is not None and before is not None:
            sign_out(connection, before)
        return token

    token = await runtime(request).store.run(signing_in)
    if token is None:
        fault = _USED if is_link_code(secret) else _UNKNOWN
        return _asking(request, after, fault=fault, status=403)
    response = RedirectResponse(after, status_code=303)
    keep_token(request, response, token)
    return response


async def post_sign_out(request: Request) -> Response:
    """End the sign-in."""
    require_own_origin(request)
    if (token := token_of(request)) is not None:
        await runtime(request).store.run(lambda connection: sign_out(connection, token))
    response = RedirectResponse("/dashboard/sign-in", status_code=303)
    drop_token(request, response)
    return response


def _fault(secret: str) -> str | None:
    """Returns the fault of a secret's form, as far as it shows without the store."""
    if is_link_code(secret):
        return None
    if not is_well_formed(secret):
        return _NO_KEY
    return None if secret.startswith(("rk_", "ro_")) else _OTHER_KIND


def _asking(
    request: Request, after: str, *, fault: str | None = None, status: int = 200
) -> Response:
    return page(
        request,
        "sign_in.html",
        status=status,
        fault=fault,
        after=after,
        leads_on=after != HOME,
    )
