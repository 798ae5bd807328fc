"""A visit: the visitor behind a session cookie, and reads and posts in the visitor's name."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import urlsplit

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.address import public_address
from api.runtime.state import runtime
from api.runtime.trusted_proxies import is_trusted, trusted_networks
from api.wire.problem import Problem
from storage.tenants.keys import Role
from storage.tenants.settings import Settings, read_settings
from storage.tenants.sign_ins import LIFETIMES, Visitor, visitor

ResultT = TypeVar("ResultT")

# Paths of the dashboard, so that a sign-in leads nowhere else.
_PAGE = re.compile(r"/dashboard(?:/[0-9A-Za-z_-]{1,128}){0,2}", re.ASCII)
HOME = "/dashboard"
_LONGEST_NAME = 256


class SignInNeededError(Exception):
    """The page needs a signed-in visitor."""


def page_after(path: str) -> str:
    """Returns the page of ours that a sign-in leads to."""
    return path if _PAGE.fullmatch(path) else HOME


def _is_secure(request: Request) -> bool:
    return public_address(request, runtime(request).settings).startswith("https:")


def _cookie_name(request: Request) -> str:
    # With the prefix no neighbour under the same domain can plant a cookie; browsers
    # take it on https.
    return f"{'__Host-' if _is_secure(request) else ''}deploy_reward"


def token_of(request: Request) -> str | None:
    """Returns the session token that the browser holds, if any."""
    return request.cookies.get(_cookie_name(request))


def keep_token(request: Request, response: Response, token: str) -> None:
    """Has the browser hold a token, for as long as any sign-in lasts."""
    response.set_cookie(
        _cookie_name(request),
        token,
        max_age=int(max(LIFETIMES.values()).total_seconds()),
        path="/",
        secure=_is_secure(request),
        httponly=True,
        # A link from a pull request opens its page; posts of other sites carry nothing.
        samesite="lax",
    )


def drop_token(request: Request, response: Response) -> None:
    """Has the browser forget its token."""
    response.delete_cookie(
        _cookie_name(request), path="/", secure=_is_secure(request), httponly=True, samesite="lax"
    )


def visitor_of(request: Request, connection: Connection, token: str) -> Visitor | None:
    """Returns who holds a token; of a name that a proxy vouched for, while it still does.

    Whoever left the group that signed in is out, or reads, from the next request on.
    """
    signed_in = visitor(connection, token)
    if signed_in is None or signed_in.name is None:
        return signed_in
    proxied = proxied_visitor(request, read_settings(connection, signed_in.project_id))
    if proxied is None or proxied.name != signed_in.name:
        return None
    return signed_in if proxied.role is Role.OWNER else replace(signed_in, role=Role.READ)


async def read_for_visitor(
    request: Request, read: Callable[[Connection, Visitor], ResultT]
) -> tuple[Visitor, ResultT]:
    """Returns the visitor, and the result of a read in the same transaction.

    Raises:
        SignInNeededError: Nobody is signed in here.
    """
    token = token_of(request)
    if token is None:
        raise SignInNeededError

    def reading(connection: Connection) -> tuple[Visitor, ResultT] | None:
        signed_in = visitor_of(request, connection, token)
        if signed_in is None:
            return None
        # A page about a missing thing still shows the visitor's project.
        request.state.visitor = signed_in
        return signed_in, read(connection, signed_in)

    result = await runtime(request).store.run(reading)
    if result is None:
        raise SignInNeededError
    return result


def require_own_origin(request: Request) -> None:
    """Refuses a post that another site's page sent with our visitor's cookie.

    Browsers send the relation of the sites where they trust the connection, and the origin of the
    page with every post.
    """
    relation = request.headers.get("Sec-Fetch-Site")
    if relation is not None:
        own = relation == "same-origin"
    else:
        origin = urlsplit(request.headers.get("Origin", ""))
        known = {request.headers.get("Host"), urlsplit(public_address_of(request)).netloc}
        own = origin.scheme in ("http", "https") and origin.netloc in known
    if not own:
        raise Problem("origin_not_allowed", "this was not sent by a page of this dashboard")


def public_address_of(request: Request) -> str:
    """Returns the address under which users reach us."""
    return public_address(request, runtime(request).settings)


@dataclass(frozen=True, kw_only=True)
class ProxiedVisitor:
    """A visitor for whom an authenticating proxy vouches, with the role that a project gives."""

    name: str
    role: Role


def proxied_visitor(request: Request, settings: Settings) -> ProxiedVisitor | None:
    """Returns the visitor whom the proxy before us names, with the role in a project.

    Args:
        request: Its connection must come from a proxy that the project trusts.

    Returns:
        None where the project gives no group a role, the connection comes from elsewhere, a header
        is missing or there twice, or no group of the visitor has a role.
    """
    if not (settings.owner_groups or settings.reader_groups) or request.client is None:
        return None
    if not is_trusted(request.client.host, trusted_networks(settings)):
        return None
    name = _header(request, settings.name_header)
    groups = {group.strip() for group in _header(request, settings.groups_header).split(",")}
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        return None
    if groups & {*settings.owner_groups}:
        return ProxiedVisitor(name=name, role=Role.OWNER)
    return ProxiedVisitor(name=name, role=Role.READ) if groups & {*settings.reader_groups} else None


def _header(request: Request, name: str) -> str:
    """Returns the value of a header that is there once: of two, either may be the visitor's own."""
    values = request.headers.getlist(name)
    return values[0].strip() if len(values) == 1 else ""
