"""A page's route: headers and sign-in around every page, and the page that shows a failure."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from api.dashboard.page.markup import page
from api.dashboard.page.visit import HOME, SignInNeededError
from api.wire.envelope import problem_response
from api.wire.problem import CODES, Problem
from api.wire.unhandled_error import unhandled_error
from storage.postgres.engine import StoreUnavailable
from storage.postgres.refusal import Refusal

_HEADERS: Mapping[str, str] = {
    # Nothing from elsewhere, nothing inline, and no frame around us.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not `no-referrer`: with it browsers don't tell the origin of our own posts.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_AGAIN_SECONDS = 5
# Failures that may be gone on another try.
_PASSING = (429, 500, 503)
_TITLES: Mapping[str, str] = {
    "not_found": "No such page",
    "store_unavailable": "The service cannot answer now",
    "internal_error": "Something broke",
}
_NEXT: Mapping[str, str] = {
    "not_found": "The address may be mistyped, or the page may have moved.",
    "unknown_deploy": "It may belong to another project: sign in to that project to see it.",
    "unknown_experiment": "It may belong to another project: sign in to that project to see it.",
    "origin_not_allowed": "Open the page anew and try again from there.",
    "method_not_allowed": "Nothing was done. Open the page anew and try again from there.",
    "rate_limited": "Nothing was done. It counts anew each minute.",
}


class PageRoute(APIRoute):
    """A route whose function takes the request and returns a page, with nothing between."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the function, its failures turned into pages."""

        async def answered(request: Request) -> Response:
            try:
                response = await self.endpoint(request)
            except SignInNeededError:
                response = _to_sign_in(request)
            except ClientDisconnect:
                raise
            except Exception as failure:  # noqa: BLE001 - any failure becomes a page
                response = _failure(request, _problem(request, failure))
            return _guarded(response)

        return answered


def asks_for_page(request: Request) -> bool:
    """Tells whether a browser requests a page of the dashboard, existing or not."""
    is_ours = f"{request.scope['path']}/".startswith(f"{HOME}/")
    return is_ours and "text/html" in request.headers.get("Accept", "")


def failure_page(request: Request, problem: Problem) -> Response:
    """Returns the page of a failure that happened before any page's function."""
    return _guarded(_failure(request, problem))


def _guarded(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def asks_for_data(request: Request) -> bool:
    """Tells whether a script of ours asks, which shows no page."""
    return request.headers.get("Accept", "") == "application/json"


def _to_sign_in(request: Request) -> Response:
    if asks_for_data(request):
        return problem_response(request, Problem("missing_key", "sign in to the dashboard"))
    path = request.scope["path"]
    query = "" if path == HOME else f"?{urlencode({'next': path})}"
    return RedirectResponse(f"/dashboard/sign-in{query}", status_code=303)


def _problem(request: Request, failure: Exception) -> Problem:
    if isinstance(failure, Problem):
        return failure
    if isinstance(failure, Refusal) and failure.code in CODES:
        return Problem(failure.code, failure.detail)
    if isinstance(failure, StoreUnavailable):
        detail = "The store cannot be reached. Nothing that was received is lost."
        return Problem("store_unavailable", detail, headers={"Retry-After": str(_AGAIN_SECONDS)})
    return unhandled_error(request, failure)


def _failure(request: Request, problem: Problem) -> Response:
    if asks_for_data(request):
        return problem_response(request, problem)
    response = page(
        request,
        "failure.html",
        status=problem.status,
        title=_TITLES.get(problem.code, CODES[problem.code][1]),
        code=problem.code,
        detail=problem.detail,
        then=_NEXT.get(problem.code),
        again=_again(request) if problem.status in _PASSING else None,
        seconds=problem.headers.get("Retry-After"),
        request_id=request.state.request_id,
    )
    response.headers.update(problem.headers)
    return response


def _again(request: Request) -> str:
    """Returns where to try again; empty of a post, which the browser sends again by itself."""
    if request.method != "GET":
        return ""
    query = request.scope["query_string"].decode("latin-1")
    return quote(request.scope["path"]) + (f"?{query}" if query else "")
