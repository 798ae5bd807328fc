"""Signing in and out: a one-time link or a project key becomes a cookie, and ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.dashboard.page.form import posted
from api.dashboard.page.markup import page
from api.dashboard.page.visit import (
    HOME,
    ProxiedVisitor,
    drop_token,
    keep_token,
    page_after,
    proxied_visitor,
    require_own_origin,
    token_of,
    visitor_of,
)
from api.runtime.rate_limit import client_address
from api.runtime.state import runtime
from storage.tenants.keys import is_well_formed
from storage.tenants.projects import Project
from storage.tenants.sign_ins import (
    Visitor,
    is_link_code,
    proxied_projects,
    sign_in_by_key,
    sign_in_by_link,
    sign_in_by_proxy,
    sign_out,
)

_USED = (
    "This link was used before, or its 15 minutes are over."
    " Run deploy-reward dashboard for a new link."
)
_NO_KEY = "This is no project key: those begin with rk_ or ro_ and have 43 characters."
_OTHER_KIND = "This key sends data. Signing in takes a project key (rk_) or a read key (ro_)."
_NO_GROUP = "No group of yours has a role in this project."
_UNKNOWN = "This project key is unknown or was revoked."
# Sign-ins in a minute: a person who mistypes needs a few, and many share a proxy's address.
_SIGN_INS_BY_ADDRESS = 60
# Sign-ins in a minute of all addresses, since each asks the store.
_SIGN_INS = 600


async def get_sign_in(request: Request) -> Response:
    """Return the page on which people sign in."""

    def reading(connection: Connection) -> tuple[Visitor | None, list[_Offer]]:
        token = token_of(request)
        known = None if token is None else visitor_of(request, connection, token)
        return known, _offers(request, connection)

    request.state.visitor, offers = await runtime(request).store.run(reading)
    return _asking(request, page_after(request.query_params.get("next", "")), offers=offers)


async def post_sign_in(request: Request) -> Response:
    """Exchange the code of a link, or a project key, for a cookie."""
    form = await posted(request)
    # No project's proxies are known yet, so clients behind a proxy share a limit.
    limits, address = runtime(request).rate_limit, client_address(request, ())
    await limits.count("sign-in-address", _SIGN_INS_BY_ADDRESS, address)
    after = page_after(form.text("next"))
    if form.text("project"):
        return await _post_proxied(request, form.text("project"), after)
    secret = form.text("secret").strip()
    if (fault := _fault(secret)) is not None:
        return _asking(request, after, fault=fault, status=422)

    def signing_in(connection: Connection) -> str | None:
        by = sign_in_by_link if is_link_code(secret) else sign_in_by_key
        token, before = by(connection, secret), token_of(request)
        if token is not None and before is not None:
            sign_out(connection, before)
        return token

    unknown = _USED if is_link_code(secret) else _UNKNOWN
    return await _signed_in(request, signing_in, after, fault=unknown)


async def _post_proxied(request: Request, project: str, after: str) -> Response:
    """Sign in to a project whose groups the visitor is of, as a trusted proxy tells."""

    def signing_in(connection: Connection) -> str | None:
        for offer in _offers(request, connection):
            if project == str(offer.project.project_id):
                if (before := token_of(request)) is not None:
                    sign_out(connection, before)
                number, known = offer.project.project_id, offer.visitor
                return sign_in_by_proxy(connection, number, role=known.role, name=known.name)
        return None

    return await _signed_in(request, signing_in, after, fault=_NO_GROUP)


async def _signed_in(
    request: Request, sign_in: Callable[[Connection], str | None], after: str, *, fault: str
) -> Response:
    shared = runtime(request)
    await shared.rate_limit.count("sign-in", _SIGN_INS, "")
    if (token := await shared.store.run(sign_in)) is None:
        return _asking(request, after, fault=fault, status=403)
    response = RedirectResponse(after, status_code=303)
    keep_token(request, response, token)
    return response


@dataclass(frozen=True, kw_only=True)
class _Offer:
    """A project that the visitor may sign in to by the word of a proxy."""

    project: Project
    visitor: ProxiedVisitor


def _offers(request: Request, connection: Connection) -> list[_Offer]:
    return [
        _Offer(project=project, visitor=known)
        for project, settings in proxied_projects(connection)
        if (known := proxied_visitor(request, settings)) is not None
    ]


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
    request: Request,
    after: str,
    *,
    fault: str | None = None,
    status: int = 200,
    offers: Sequence[_Offer] = (),
) -> Response:
    return page(
        request,
        "sign_in.html",
        status=status,
        fault=fault,
        offers=offers,
        after=after,
        leads_on=after != HOME,
    )
