"""What the SDK's file sends from a page of another origin, and that no page suffers from it."""

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Page
from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.app import create_app
from api.runtime.settings import ApiSettings
from api.wire.event_batch import MOST_EVENTS
from storage.schema.tables import runtime_events
from storage.tenants.keys import KeyKind
from storage.tenants.projects import CreatedProject, create_project
from storage.tenants.sample import Sample, salt_of
from storage.tenants.secret import Assignments, assignment_message, assignment_token
from storage.tenants.setting_changes import apply_settings
from tests.conftest import Store, fresh_store
from tests.processes.api_process import eventually
from tests.processes.served import Served
from tests.repetition import also_nightly

SECRET = b"a secret of the tests, long enough"
SHA = "4f2a9c1d"
MONTH = 30 * 86_400
# Values are stored in whole millionths.
MILLION = 1_000_000
# From where on a vital is poor, in milliseconds and as a score (web.dev/articles/vitals).
POOR = {"lcp": 4000, "cls": 0.25, "inp": 500}

pytestmark = pytest.mark.process


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A request with events, as the API saw it."""

    at: float
    mode: str
    events: list[dict[str, Any]]
    sent_at: str


@dataclass(kw_only=True)
class Moody:
    """The service, and what it answers instead of its own answer to the next requests."""

    app: ASGIApp
    moods: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self.app(scope, receive, send)
        request = Request(scope, receive)
        body = await request.body()
        document = json.loads(body)
        mode = request.headers.get("Sec-Fetch-Mode", "")
        self.attempts.append(Attempt(at=time.monotonic(), mode=mode, **document))

        async def again() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def unheard(_: Message) -> None:
            pass

        if not self.moods:
            return await self.app(scope, again, send)
        status, headers = self.moods.pop(0)
        if status == 502:
            # Stored, but the answer was lost on its way back.
            await self.app(scope, again, unheard)
        seen = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "Retry-After"}
        return await Response(status_code=status, headers=seen | headers)(scope, receive, send)


@dataclass(kw_only=True)
class Site:
    """The page of another origin, at all paths."""

    headers: dict[str, str] = field(default_factory=dict)
    html: str = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await HTMLResponse(self.html, headers=self.headers)(scope, receive, send)


@dataclass(kw_only=True)
class Shop:
    """A project whose site loads the SDK from a real service."""

    store: Store
    project: CreatedProject
    api: Served
    moody: Moody
    served: Served
    site: Site

    def shows(self, *, before: str = "", after: str = "", **attributes: str) -> None:
        """Gives every page these parts, and the file's element these `data-` attributes."""
        given = {"key": self.key, "commit": SHA, **attributes}
        attributes = " ".join(f"data-{name}='{value}'" for name, value in given.items() if value)
        script = f"<script src='{self.api.url}/sdk.js' {attributes}></script>"
        self.site.html = f"<!doctype html><title>shop</title>{before}{script}<h1>Shop</h1>{after}"

    def url(self, path: str = "/") -> str:
        return f"{self.served.url}{path}"

    def sampled(self, rate: float) -> None:
        """Has the project measure a share of its units."""
        with self.store.engine.begin() as connection:
            apply_settings(connection, self.project.project_id, {"sample_rate": rate})

    def sessions_by_sample(self, rate: float) -> tuple[str, str]:
        """A session in the sample, and another outside it."""
        sample = Sample(salt=salt_of(self.project.project_id), rates={"session": rate})
        names = [f"s-{number}" for number in range(200)]
        return (
            next(name for name in names if sample.takes(name, None)),
            next(name for name in names if not sample.takes(name, None)),
        )

    @property
    def key(self) -> str:
        return self.project.keys[KeyKind.PUBLIC]

    @property
    def rows(self) -> list[Any]:
        query = (
            select(runtime_events)
            .where(runtime_events.c.project_id == self.project.project_id)
            .order_by(runtime_events.c.occurred_at, runtime_events.c.event.desc())
        )
        with self.store.engine.begin() as connection:
            return list(connection.execute(query))

    def stored(self, count: int, *, event: str | None = None) -> list[Any]:
        """What is in the store, once it is so many."""

        def rows_of_session() -> list[Any] | None:
            rows = [row for row in self.rows if event in (None, row.event)]
            return rows if len(rows) >= count else None

        rows = eventually(rows_of_session)
        assert len(rows) == count, [row.event for row in rows]
        return rows


@pytest.fixture(scope="module")
def open_shop(postgres_url, migrated_template) -> Iterator[Callable[[], Shop]]:
    """Opens shops, each a project of its own, on a service and a site."""
    with fresh_store(postgres_url, migrated_template) as store:
        settings = ApiSettings(database_url=store.url, secret=SECRET)
        moody, site = Moody(app=create_app(settings)), Site()

        def opened() -> Shop:
            with store.engine.begin() as connection:
                project = create_project(connection, secrets.token_hex(6))
            moody.attempts, moody.moods = [], []
            site.headers, site.html = {}, ""
            return Shop(
                store=store, project=project, api=api, moody=moody, served=served, site=site
            )

        with Served(app=moody) as api, Served(app=site, host="localhost") as served:
            yield opened


@pytest.fixture
def shop(open_shop) -> Shop:
    shop = open_shop()
    shop.shows()
    return shop


def leave(page: Page) -> None:
    """Ends the page as a visitor does who goes elsewhere: what it has is sent at once."""
    page.goto("about:blank")


def measured(page: Page, kind: str, which: str = "true") -> None:
    """Waits until the browser has measured something of a kind."""
    page.evaluate(
        f"""new Promise((seen) =>
          new PerformanceObserver((list) => list.getEntries().some((entry) => {which}) && seen())
            .observe({{ type: "{kind}", buffered: true }}))"""
    )


def faults(page: Page) -> list[str]:
    """What goes wrong on a page from now on."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    return errors


@pytest.mark.requirement("runtime-event.sender")
def test_a_page_view_tells_the_unit_the_build_the_flags_and_the_route(shop, page) -> None:
    flags = {"new_cart": True, "theme": "dark"}
    shop.shows(flags=json.dumps(flags), environment="staging")
    # Neither inline script nor any other host is needed.
    shop.site.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src {shop.api.url}; connect-src {shop.api.url}"
    )
    page.goto(shop.url("/checkout/4711?email=someone@example.org"))
    (row,) = shop.stored(1)
    assert (row.event, row.route, row.commit_sha) == ("page_view", "/checkout/4711", SHA)
    assert (row.flags, row.environment, row.trusted) == (flags, "staging", False)
    assert len(row.event_id) > 20
    assert abs((row.received_at - row.occurred_at).total_seconds()) < 30
    (kept,) = page.context.cookies()
    assert (kept["name"], kept["value"]) == ("dr_unit", row.session_id)
    assert kept["expires"] == pytest.approx(time.time() + MONTH, abs=60)
    # Sent as text: no question goes before it.
    assert [attempt.mode for attempt in shop.moody.attempts] == ["cors"]

    page.goto(shop.url("/"))
    leave(page)
    assert {row.session_id for row in shop.stored(2, event="page_view")} == {row.session_id}


@pytest.mark.nightly
def test_a_page_has_one_name_more_and_no_other_trace(shop, page) -> None:
    errors = faults(page)
    script, shop.site.html = shop.site.html, "<!doctype html>"
    names = "Object.getOwnPropertyNames(window)"
    page.goto(shop.url())
    before = page.evaluate(names)
    shop.site.html = script
    page.goto(shop.url())
    assert set(page.evaluate(names)) - set(before) == {"deployReward"}
    # Loaded once more, and asked for nonsense.
    page.add_script_tag(url=f"{shop.api.url}/sdk.js")
    page.evaluate("deployReward.push(), deployReward.push(['nothing']), deployReward.init()")
    page.evaluate("history.pushState({ step: 2 }, '', '/cart?step=2')")
    assert page.evaluate("[history.state.step, location.pathname]") == [2, "/cart"]
    with pytest.raises(Exception, match="SecurityError"):
        page.evaluate("history.pushState({}, '', 'https://elsewhere.example/')")
    leave(page)
    assert [row.route for row in shop.stored(2, event="page_view")] == ["/", "/cart"]
    assert errors == []


@pytest.mark.nightly
def test_where_nothing_may_be_kept_events_are_sent_all_the_same(shop, page) -> None:
    errors = faults(page)
    inner = shop.site.html.replace('"', "&quot;")
    shop.site.html = f'<iframe sandbox="allow-scripts" srcdoc="{inner}"></iframe>'
    page.goto(shop.url())
    (row,) = shop.stored(1)
    assert (row.event, row.route) == ("page_view", "/srcdoc")
    assert errors == []


def test_a_view_of_a_page_is_one_of_its_path_however_it_came_about(shop, page) -> None:
    shop.shows(route="/products/[id]")
    page.goto(shop.url("/products/7"))
    for call in (
        "history.replaceState({}, '', '/products/7')",
        "history.pushState({}, '', '/products/7?colour=red')",
        "history.pushState({}, '', '#reviews')",
        "history.pushState({}, '', '/cart')",
        "history.replaceState({}, '', '/checkout')",
        "deployReward.page('/checkout/[step]')",
        "history.go(-1)",
    ):
        page.evaluate(call)
    eventually(lambda: page.evaluate("location.pathname") == "/products/7")
    leave(page)
    routes = [row.route for row in shop.stored(5, event="page_view")]
    expected = ["/products/[id]", "/cart", "/checkout", "/checkout/[step]", "/products/7"]
    assert routes == expected


def test_a_function_can_say_which_route_a_path_is(shop, page) -> None:
    options = f"key: '{shop.key}', url: '{shop.api.url}', user_ref: 'someone', commit: '{SHA}'"
    route = "route: (path) => path.replace(/[0-9]+/, '[id]')"
    shop.shows(key="", after=f"<script>deployReward.init({{ {options}, {route} }})</script>")
    page.goto(shop.url("/orders/17"))
    page.evaluate("history.pushState({}, '', '/orders/18/items')")
    leave(page)
    rows = shop.stored(2, event="page_view")
    assert [row.route for row in rows] == ["/orders/[id]", "/orders/[id]/items"]
    assert all(len(row.pseudonym) == 32 for row in rows)


def test_events_may_be_named_before_the_file_is_there(shop, page) -> None:
    queue = "(window.deployReward ||= [])"
    shop.shows(
        before=f"""<script>
        {queue}.push(["track", "order_placed", {{ value: 40.5, properties: {{ items: 2 }} }}]);
        {queue}.push(["set", {{ flags: {{ new_cart: true }} }}]);
        </script>"""
    )
    page.goto(shop.url("/cart"))
    # What cannot be sent is left out, and takes nothing else with it.
    page.evaluate("() => { const loop = {}; loop.loop = loop; deployReward.track('loop', loop) }")
    page.evaluate("deployReward.track('large', { properties: { text: 'x'.repeat(20000) } })")
    page.evaluate("deployReward.push(['set', { flags: { new_cart: false } }])")
    page.evaluate("deployReward.push(['track', 'thanked'])")
    leave(page)
    eventually(lambda: any(row.event == "thanked" for row in shop.rows))
    named = {row.event: row for row in shop.rows}
    order = named["order_placed"]
    assert (order.value, order.properties, order.route) == (40_500_000, {"items": 2}, "/cart")
    assert order.commit_sha == SHA
    assert named["page_view"].flags == order.flags == {"new_cart": True}
    assert named["thanked"].flags == {"new_cart": False}
    assert not {"loop", "large"} & named.keys()


def test_errors_are_told_once_a_page_and_without_their_words(shop, page) -> None:
    page.goto(shop.url("/cart"))
    later = "setTimeout(() => { throw new TypeError('anna@example.org') })"
    page.evaluate(f"{later}; {later}; Promise.reject(new Error('anna')); 0")
    # Nothing is known of these, or it is no fault of a script.
    page.evaluate("dispatchEvent(new ErrorEvent('error', { message: 'Script error.' }))")
    page.evaluate("document.body.append(Object.assign(new Image(), { src: 'data:,' }))")
    page.evaluate("new Promise((wake) => setTimeout(wake, 20))")
    page.evaluate("history.pushState({}, '', '/checkout')")
    page.evaluate("Promise.reject(); new Promise((wake) => setTimeout(wake, 20))")
    leave(page)
    first, second = shop.stored(2, event="error")
    assert first.properties["kind"] in {"error", "unhandledrejection"}
    assert (first.route, second.route) == ("/cart", "/checkout")
    assert second.properties == {"kind": "unhandledrejection"}
    assert "anna" not in json.dumps([row.properties for row in shop.rows])


@pytest.mark.nightly
def test_vitals_are_told_when_the_page_is_left(shop, page) -> None:
    shop.shows(
        after="""<div id="late"></div><button>Buy</button><script>
        const busy = (ms, end = performance.now() + ms) => { while (performance.now() < end); };
        document.querySelector("button").onclick = () => busy(600);
        </script>"""
    )
    page.goto(shop.url("/cart"))
    measured(page, "largest-contentful-paint")
    # Away from any input, which would excuse it.
    page.evaluate("document.querySelector('#late').style.height = '200px'")
    measured(page, "layout-shift")
    page.click("button")
    page.evaluate("history.pushState({}, '', '/elsewhere')")
    measured(page, "event", "entry.interactionId && entry.duration >= 600")
    leave(page)
    eventually(lambda: any(row.event == "inp" for row in shop.rows))
    values = {row.event: row.value / MILLION for row in shop.rows if row.value is not None}
    assert values.keys() == POOR.keys()
    assert values["lcp"] > 0
    assert 0 < values["cls"] < 1
    assert values["inp"] >= 600
    reported = [row for row in shop.rows if row.event.removeprefix("poor_") in POOR]
    for name, poor in POOR.items():
        assert (f"poor_{name}" in {row.event for row in reported}) == (values[name] > poor)
    # Of the page that was loaded, wherever its script went meanwhile.
    assert {row.route for row in reported} == {"/cart"}


@pytest.mark.parametrize("keepalive", also_nightly([True], [False]), ids=["fetch", "beacon"])
def test_what_is_told_last_arrives_although_the_page_ends(shop, page, *, keepalive) -> None:
    if not keepalive:
        page.add_init_script("delete Request.prototype.keepalive")
    link = "<a href='/next' onclick='deployReward.track(\"left\")'>next</a>"
    shop.shows(after=link)
    page.goto(shop.url("/cart"))
    page.click("a")
    (left,) = shop.stored(1, event="left")
    assert left.route == "/cart"
    page.wait_for_url("**/next")
    page.evaluate("deployReward.track('closed')")
    page.close()
    shop.stored(1, event="closed")
    modes = {attempt.mode for attempt in shop.moody.attempts}
    assert modes == ({"cors"} if keepalive else {"no-cors"})


def test_a_hundred_events_and_more_are_sent_in_parts_that_outlive_the_page(shop, page) -> None:
    page.goto(shop.url())
    page.evaluate("for (let n = 0; n < 150; n++) deployReward.track('scrolled', { value: n })")
    leave(page)
    rows = shop.stored(150, event="scrolled")
    assert sorted(row.value for row in rows) == [n * MILLION for n in range(150)]
    assert max(len(attempt.events) for attempt in shop.moody.attempts) < MOST_EVENTS


def test_the_same_is_sent_again_when_the_service_asks_for_it_or_is_not_heard(shop, page) -> None:
    shop.moody.moods += [(429, {"Retry-After": "1"}), (502, {})]
    page.goto(shop.url())
    eventually(lambda: len(shop.moody.attempts) == 3)
    first, second, third = shop.moody.attempts
    assert first.events == second.events == third.events
    assert first.sent_at < second.sent_at < third.sent_at
    assert second.at - first.at >= 1
    # The answer was lost, not the event: it is there twice, and is a single event by its id.
    once, again = shop.stored(2)
    assert (once.event_id, once.occurred_at) == (again.event_id, again.occurred_at)


@pytest.mark.nightly
def test_what_is_refused_is_not_sent_again(shop, page) -> None:
    shop.shows(key="pk_mistyped")
    page.goto(shop.url())
    eventually(lambda: len(shop.moody.attempts) == 1)
    page.evaluate("deployReward.track('later')")
    eventually(lambda: len(shop.moody.attempts) == 2)
    names = [[event["event"] for event in attempt.events] for attempt in shop.moody.attempts]
    assert names == [["page_view"], ["later"]]


def test_a_unit_outside_the_sample_is_silent_after_its_first_answer(shop, page) -> None:
    shop.sampled(0.5)
    inside, outside = shop.sessions_by_sample(0.5)
    shop.shows(cookie="session")
    page.context.add_cookies([{"name": "session", "value": outside, "url": shop.url()}])
    page.goto(shop.url("/first"))
    page.wait_for_function("Object.keys(sessionStorage).some((name) => name.includes(','))")
    answered = len(shop.moody.attempts)
    page.evaluate("deployReward.track('order_placed')")
    page.goto(shop.url("/second"))
    page.context.add_cookies([{"name": "session", "value": inside, "url": shop.url()}])
    # Another unit of the same tab is asked for anew.
    page.goto(shop.url("/third"))
    eventually(lambda: len(shop.moody.attempts) > answered)
    shop.stored(1)
    later = [event for attempt in shop.moody.attempts[answered:] for event in attempt.events]
    assert {event["session_id"] for event in later} == {inside}
    assert [row.session_id for row in shop.rows] == [inside]


def test_while_the_service_is_away_events_wait_for_it_from_page_to_page(shop, page) -> None:
    errors = faults(page)
    page.goto(shop.url("/first"))
    shop.stored(1)
    shop.api.stop()
    with page.expect_event("requestfailed"):
        page.evaluate("deployReward.track('order_placed')")
    # The file of the next page comes from the browser's cache.
    page.goto(shop.url("/second"))
    shop.api.start()
    eventually(lambda: any(row.event == "order_placed" for row in shop.rows))
    eventually(lambda: [row.route for row in shop.rows if row.event == "page_view"][1:])
    (order,) = (row for row in shop.rows if row.event == "order_placed")
    assert order.route == "/first"
    assert errors == []


def test_who_asks_not_to_be_tracked_is_not_where_the_page_respects_it(shop, new_context) -> None:
    for asked in ("doNotTrack", "globalPrivacyControl"):
        page = new_context().new_page()
        page.add_init_script(
            f"Object.defineProperty(Navigator.prototype, '{asked}', {{ value: '1' }})"
        )
        shop.shows(dnt="respect")
        page.goto(shop.url("/respected"))
        page.evaluate("deployReward.track('order_placed')")
        page.evaluate("history.pushState({}, '', '/respected/too')")
        leave(page)
        assert page.context.cookies() == []
    # The setting is the page's, and so is the choice.
    shop.shows()
    page.goto(shop.url("/not-respected"))
    leave(page)
    eventually(lambda: shop.rows)
    assert {row.route for row in shop.rows} == {"/not-respected"}


META = '<meta name="commit" content="{}">'


@pytest.mark.nightly
def test_the_build_is_found_where_it_is_told(shop, page) -> None:
    for path, attribute, before, timing in (
        ("/option", SHA, META.format("9b1c5d7e"), "9b1c5d7e"),
        ("/meta", "", META.format(SHA), "9b1c5d7e"),
        ("/server-timing", "", "", SHA),
        # What a build without its variable hands on.
        ("/no-commit", "undefined", META.format(""), SHA),
    ):
        shop.shows(commit=attribute, before=before)
        shop.site.headers["Server-Timing"] = f'cache;dur=1.5, commit;desc="{timing}"'
        page.goto(shop.url(path))
    leave(page)
    rows = shop.stored(4, event="page_view")
    assert [row.route for row in rows] == ["/option", "/meta", "/server-timing", "/no-commit"]
    assert {row.commit_sha for row in rows} == {SHA}


@pytest.mark.parametrize("place", also_nightly(["cookie"], ["meta"]))
def test_what_a_router_signed_is_handed_on_as_it_gave_it(shop, page, place) -> None:
    key = Assignments(SECRET).key(shop.project.project_id, 1)
    served = assignment_message(environment="production", session_id="unit-1", commit=SHA)
    text, shown = f"{SHA}.{assignment_token(key, served)}", ""
    cookies = {"session": "unit-1"}
    if place == "cookie":
        cookies["assignment"] = text
    else:
        shown = f'<meta name="assignment" content="{text}">'
    page.context.add_cookies(
        [{"name": name, "value": value, "url": shop.url()} for name, value in cookies.items()]
    )
    # The router's word goes before a name of the same build that is longer.
    shop.shows(commit=f"{SHA}00", before=shown, cookie="session", assignment="assignment")
    page.goto(shop.url())
    leave(page)
    (row,) = shop.stored(1, event="page_view")
    assert (row.session_id, row.commit_sha, row.signed) == ("unit-1", SHA, True)
    # The router's unit is enough: no other is kept.
    assert {cookie["name"] for cookie in page.context.cookies()} == cookies.keys()


def test_without_the_routers_cookie_a_visitor_has_a_unit_of_its_own(shop, page) -> None:
    shop.shows(cookie="session")
    page.goto(shop.url())
    leave(page)
    (row,) = shop.stored(1, event="page_view")
    assert re.fullmatch(r"\d+(-\d+){3}", row.session_id)


@pytest.mark.nightly
def test_a_visitor_has_a_reference_over_sessions_while_the_page_asks_for_it(shop, page) -> None:
    def named(session: str, **asked: str) -> bytes | None:
        page.context.add_cookies([{"name": "session", "value": session, "url": shop.url()}])
        shop.shows(cookie="session", **asked)
        page.goto(shop.url())
        leave(page)
        eventually(lambda: any(row.session_id == session for row in shop.rows))
        return next(row.pseudonym for row in shop.rows if row.session_id == session)

    def kept() -> set[str]:
        return {cookie["name"] for cookie in page.context.cookies()} - {"session"}

    assert named("s-1") is None
    assert named("s-2", visitor="no") is None
    assert kept() == set()
    first = named("s-3", visitor="send")
    assert first is not None
    assert kept() == {"dr_visitor"}
    assert named("s-4", visitor="send") == first
    assert named("s-5", visitor="send", user_ref="user 7") not in (None, first)
    # Consent is withdrawn, and given again later: by somebody new.
    assert named("s-6") is None
    assert kept() == set()
    assert named("s-7", visitor="send") not in (None, first)
