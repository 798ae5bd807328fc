"""The shop as it is served: two builds, behind a router that draws by docs/routing.md."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from numpy.random import Generator
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from tests.browser.story.checkout import NEW, OLD, Checkout
from tests.clients.page import example, names_of

_MONTH = 30 * 86_400
_ORDER = """
document.querySelector("button").addEventListener("click", () => {
  (window.deployReward ||= []).push(["track", "order_placed", { value: 40.5 }]);
  document.querySelector("output").textContent = "Thank you";
});
"""


def _documented() -> Callable[[str, str, float], bool]:
    return names_of(example("draw.py"))["is_drawn"]


@dataclass(kw_only=True)
class Shop:
    """An application that serves a visitor either of two builds, and always the same.

    Attributes:
        element: What the dashboard says to put into the pages, its blanks not filled in yet.
    """

    checkout: Checkout
    service: str
    key: str
    chance: Generator
    element: str = ""
    share: int = 0
    is_drawn: Callable[[str, str, float], bool] = field(default_factory=_documented)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer(Request(scope))(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        if request.url.path == "/shop.js":
            return Response(_ORDER, media_type="text/javascript")
        unit = request.cookies.get("session") or self.chance.bytes(16).hex()
        canary = self.share > 0 and self.is_drawn(self.checkout.change, unit, self.share / 10_000)
        html = self._page(request.url.path, canary=canary)
        answer = HTMLResponse(html, headers=self._headers)
        answer.set_cookie("session", unit, max_age=_MONTH, samesite="lax")
        return answer

    @property
    def _headers(self) -> dict[str, str]:
        policy = f"default-src 'self'; script-src 'self' {self.service}; connect-src {self.service}"
        return {"Content-Security-Policy": policy}

    def _page(self, path: str, *, canary: bool) -> str:
        commit, label = (self.checkout.change, NEW) if canary else (self.checkout.base, OLD)
        sdk = self.element
        for name, value in (("key", self.key), ("commit", commit), ("cookie", "session")):
            sdk = re.sub(f'data-{name}="[^"]*"', f'data-{name}="{value}"', sdk)
        shown = '<a href="/checkout/4711">To the checkout</a>'
        if path.startswith("/checkout/"):
            shown = (
                f"<button>{label}</button><output></output><script src='/shop.js' defer></script>"
            )
        return f"<!doctype html><title>shop</title>{sdk}<h1>Shop</h1>{shown}"
