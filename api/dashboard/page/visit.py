"""A visit: who looks at a page, told by the cookie of the sign-in, and what is read for them."""

import re
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.address import public_address
from api.runtime.state import runtime
from api.wire.problem import Problem
from storage.tenants.sign_ins import LIFETIMES, Visitor, visitor

ResultT = TypeVar("ResultT")

# Of a page of ours, so that a sign-in leads nowhere else.
_PAGE = re.compile(r"/dashboard(?:/[0-9A-Za-z_-]{1,128}){0,2}", re.ASCII)
HOME = "/dashboard"


class SignInNeededError(Exception):
    """The page is for somebody who signed in."""


def page_after(path: str) -> str:
    """Returns the page of ours that a sign-in leads to."""
    return path if _PAGE.fullmatch(path) else HOME


def _is_secure(request: Request) -> bool:
    return public_address(request, runtime(request).settings).startswith("https:")


def _cookie_name(request: Request) -> str:
    # With the prefix no neighbour under the same domain can plant one; browsers take it on https.
    return f"{'__Host-' if _is_secure(request) else ''}deploy_reward"


def token_of(request: Request) -> str | None:
    """Returns what the browser holds of its sign-in, if anything."""
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


async def seen(
    request: Request, read: Callable[[Connection, Visitor], ResultT]
) -> tuple[Visitor, ResultT]:
    """Returns who asks, and what is read for them in the same transaction.

    Raises:
        SignInNeededError: Nobody is signed in here.
        StoreUnavailable: The store cannot be reached.
    """
    token = token_of(request)
    if token is None:
        raise SignInNeededError

    def reading(connection: Connection) -> tuple[Visitor, ResultT] | None:
        found = visitor(connection, token)
        if found is None:
            return None
        # A page that tells what is missing still tells whose project it is of.
        request.state.visitor = found
        return found, read(connection, found)

    found = await runtime(request).store.run(reading)
    if found is None:
        raise SignInNeededError
    return found


def require_own_origin(request: Request) -> None:
    """Refuses a post that another site's page sent with our visitor's cookie.

    Browsers tell the relation of the sites where they trust the connection, and the origin of the
    page with every post.

    Raises:
        Problem: It comes from elsewhere, or does not tell whence.
    """
    relation = request.headers.get("Sec-Fetch-Site")
    if relation is not None:
        own = relation == "same-origin"
    else:
        told = urlsplit(request.headers.get("Origin", ""))
        known = {request.headers.get("Host"), _host(public_address_of(request))}
        own = told.scheme in ("http", "https") and told.netloc in known
    if not own:
        raise Problem("origin_not_allowed", "this was not sent by a page of this dashboard")


def public_address_of(request: Request) -> str:
    """Returns the address under which users reach us."""
    return public_address(request, runtime(request).settings)


def _host(address: str) -> str:
    return address.partition("://")[2].partition("/")[0]
