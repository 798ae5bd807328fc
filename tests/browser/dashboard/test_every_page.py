"""Every page, for whoever sees badly, points with nothing, or holds a phone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, Page, expect

from storage.tenants.keys import Role
from storage.tenants.sign_ins import create_link, sign_in_by_link
from tests.browser.dashboard.world import HARMS, Pages, Served
from tests.repetition import also_nightly

pytestmark = pytest.mark.process

NewContext = Callable[..., BrowserContext]
MODES: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}},
}
SETTINGS = "/dashboard/settings"
# Of the gallery, those that no other looks like.
UNLIKE = ("shares", "mean_kept", "almost", "never")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A page, and whose it is; nobody's where nobody is signed in."""

    path: str
    served: Served | None
    role: Role = Role.READ


def every_page(world: Pages) -> list[Seen]:
    shop, lab, bare = world.served, world.gallery.story, world.bare
    owned = [SETTINGS + path for path in ("", "/keys", "/metrics", "/values", "/webhooks")]
    owned.append(f"{SETTINGS}/audit-trail")
    names = ("", "/deploys", "/experiments", "/ledger", "/portfolio")
    lists = [f"/dashboard{name}" for name in names]
    paths = [*lists, f"/dashboard/deploys/{world.deploys[HARMS]}", "/dashboard/experiments/exp_1"]
    paths += [f"/dashboard/deploys/dep_{'0' * 20}", "/dashboard/nowhere"]
    return [
        Seen(path="/dashboard/sign-in", served=None),
        *(Seen(path=path, served=shop) for path in (*paths, "/dashboard/sign-in", SETTINGS)),
        *(Seen(path=path, served=shop, role=Role.OWNER) for path in owned),
        *(Seen(path=world.path(name), served=shop) for name in world.experiments),
        *(Seen(path=world.gallery.path(name), served=lab) for name in world.gallery.experiments),
        *(Seen(path=path, served=lab) for path in lists),
        *(Seen(path=path, served=bare) for path in lists),
    ]


def _is_like_others(world: Pages, seen: Seen) -> bool:
    """Of these another page is made of the same parts, or another test looks at them."""
    names = set(world.gallery.experiments) - set(UNLIKE)
    alike = {world.path("rollback"), world.path("iterate"), *map(world.gallery.path, names)}
    alike |= {SETTINGS + path for path in ("/keys", "/values", "/webhooks")}
    alike |= {f"/dashboard/deploys/dep_{'0' * 20}", "/dashboard/experiments/exp_1"}
    if seen.served is world.bare:
        return seen.path != "/dashboard"
    own = seen.served is not world.gallery.story or "/experiments/" in seen.path
    return seen.path in alike or not own


class Visits:
    """Pages of whoever looks, a page for each mode and project, and what was wrong with any."""

    def __init__(self, context: NewContext, world: Pages) -> None:
        self._context, self._world = context, world
        self._pages: dict[tuple[str, int | None, Role], Page] = {}
        self.wrong: list[str] = []

    def visit(self, seen: Seen, mode: str) -> Page:
        page = self._page(seen, mode)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{self._world.url}{seen.path}")
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        faults = [
            f"{violation['id']} {[node['html'][:200] for node in violation['nodes']]}"
            for violation in Axe().run(page, options=_VIOLATIONS).response["violations"]
            if violation["impact"] in ("serious", "critical")
        ]
        faults += [url for url in asked if not url.startswith(f"{self._world.url}/dashboard")]
        if (wide := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
            faults.append(f"wider by {wide} than the window")
        # What a phone's reader comes for is not behind an edge.
        faults += [f"{name} is cut" for name in page.evaluate(_CUT)]
        if not page.title().endswith(" · Deploy Reward") or page.title().startswith(" ·"):
            faults.append(f"title {page.title()!r}")
        counts = page.evaluate(_LANDMARKS)
        if counts != {"main": 1, "header": 1, "h1": 1, "unnamed": 0, "plain": 0}:
            faults.append(f"landmarks {counts}")
        self.wrong += [f"{mode} {seen.path}: {violation}" for violation in faults]
        return page

    def _page(self, seen: Seen, mode: str) -> Page:
        project_id = seen.served and seen.served.project.project_id
        key = (mode, project_id, seen.role)
        if key not in self._pages:
            made = self._context(**MODES[mode], reduced_motion="reduce")
            if seen.served is not None:
                made.add_cookies([_cookie(self._world.url, seen.served, seen.role)])
            self._pages[key] = made.new_page()
        return self._pages[key]


_VIOLATIONS = {"resultTypes": ["violations"]}
_CUT = """() => [...document.querySelectorAll(".scroll:has(.stacked)")]
    .filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.ariaLabel)"""
_LEFTS = """(told) => [...document.querySelectorAll(told)]
    .map((each) => Math.round(each.getBoundingClientRect().left))"""
# Words of an entry that come nearer to its button than a letter's breadth.
_OVERLAPS = """() => [...document.querySelectorAll(".entries > li")].filter((each) => {
    const words = document.createRange();
    words.selectNodeContents(each.querySelector(".entry"));
    const button = each.querySelector("details > summary > span").getBoundingClientRect();
    return [...words.getClientRects()].some((line) =>
        line.right > button.left - 8 && line.bottom > button.top && line.top < button.bottom);
}).map((each) => each.innerText.slice(0, 20))"""
# Tables without a caption or heads, navigations without a name, plots without words.
_LANDMARKS = """() => {
    const count = (told) => document.querySelectorAll(told).length;
    return {
        main: count("main"), header: count("body > header"), h1: count("h1"),
        unnamed: count("nav:not([aria-label]), [role=img]:not([aria-label])"),
        plain: count("table:not(:has(caption)), table:not(:has(thead th[scope=col]))"),
    };
}"""


def _cookie(url: str, served: Served, role: Role) -> Any:
    with served.store.engine.begin() as connection:
        code = create_link(connection, served.project.project_id, role)
        token = sign_in_by_link(connection, code)
    return {"name": "deploy_reward", "value": token, "url": url}


@pytest.fixture
def visits(context, world) -> Iterator[Visits]:
    """Fails the test by whatever was wrong with any page."""
    visits = Visits(context, world)
    yield visits
    assert visits.wrong == []


@pytest.mark.parametrize("third", also_nightly([0], [1, 2]))
def test_every_page_serves_whoever_cannot_see_point_or_hold_a_screen_of_that_width(
    visits, world, third
) -> None:
    # Each page in a single mode, each mode on a third of the pages; beside, all of them.
    for number, (seen, mode) in enumerate(zip(every_page(world), cycle(MODES))):
        if number // len(MODES) % 3 == third and not _is_like_others(world, seen):
            visits.visit(seen, mode)


@pytest.mark.nightly
def test_rows_of_a_list_stand_in_columns_and_their_words_apart_from_buttons(visits, world) -> None:
    seen = Seen(path="/dashboard", served=world.served)
    page = visits.visit(seen, "light")
    lefts = page.evaluate(_LEFTS, ".findings .pill")
    assert len(lefts) > 1
    assert len(set(lefts)) == 1
    keys = Seen(path=f"{SETTINGS}/keys", served=world.served, role=Role.OWNER)
    assert visits.visit(keys, "phone").evaluate(_OVERLAPS) == []


@pytest.mark.deep
@pytest.mark.parametrize("mode", MODES)
def test_every_page_serves_everybody_in_each_mode(visits, world, mode) -> None:
    for seen in every_page(world):
        visits.visit(seen, mode)


def _tab_to(page: Page, wanted: Locator, *, most: int = 60) -> None:
    """Goes on by the keyboard to an element; on the way the focus is seen."""
    for _ in range(most):
        page.keyboard.press("Tab")
        width, style = page.evaluate(
            "(({outlineWidth, outlineStyle}) => [parseFloat(outlineWidth), outlineStyle])"
            "(getComputedStyle(document.activeElement))"
        )
        place = page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        assert (width >= 1 and style != "none") or place.startswith("<body"), place
        if wanted.evaluate("(one) => one === document.activeElement"):
            return
    raise AssertionError(f"{most} steps do not lead to {wanted}")


@pytest.mark.nightly
def test_the_keyboard_alone_leads_from_the_sign_in_to_settings_that_are_saved(
    context, world
) -> None:
    page = context().new_page()
    with world.served.store.engine.begin() as connection:
        code = create_link(connection, world.served.project.project_id, Role.OWNER)
    page.goto(f"{world.url}/dashboard/sign-in")
    expect(page.get_by_label("Project key")).to_be_focused()
    page.keyboard.type(code)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{world.url}/dashboard")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    _tab_to(page, page.locator(f'main a[href*="{world.deploys[HARMS]}"]').first)
    page.keyboard.press("Enter")
    page.wait_for_url("**/deploys/dep_*")
    _tab_to(page, page.locator("main .findings a"))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{world.path('rollback')}")
    _tab_to(page, page.locator("details summary").first)
    page.keyboard.press("Enter")
    expect(page.locator("details").first).to_have_attribute("open", "")
    _tab_to(page, page.get_by_role("link", name="Settings"))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{SETTINGS}")
    grace = page.get_by_label("Grace, in seconds")
    _tab_to(page, page.locator("summary", has_text="How it is decided"))
    page.keyboard.press("Enter")
    _tab_to(page, grace)
    page.keyboard.press("Control+A")
    page.keyboard.type("180")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("Saved.")
    expect(grace).to_have_value("180")
