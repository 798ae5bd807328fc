"""The dashboard in a browser: what a product engineer sees and does."""

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from storage.tenants.keys import KeyKind
from tests.browser.dashboard.world import HARMS

pytestmark = pytest.mark.process

Opened = Callable[..., Page]


def test_a_link_to_an_experiment_leads_through_the_sign_in_to_it(context, world) -> None:
    page = context().new_page()
    page.goto(f"{world.url}{world.path('keep')}")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.keyboard.type(world.served.project.keys[KeyKind.PROJECT])
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{world.path('keep')}")
    expect(page.get_by_label("Verdict", exact=True)).to_contain_text("Keep")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Verdict", exact=True)).to_have_count(0)


@pytest.mark.nightly
def test_a_link_signs_in_once_and_its_code_stays_nowhere(context, world) -> None:
    link = world.served.link()
    page = context().new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    # Whoever is on the page already changes nothing but its fragment.
    page.goto(f"{world.url}/dashboard/sign-in")
    page.goto(link)
    page.wait_for_url(f"{world.url}/dashboard")
    code = link.partition("#")[2]
    assert not [url for url in asked if code in url.partition("#")[0]]
    page.go_back()
    assert code not in page.url
    other = context().new_page()
    other.goto(link)
    expect(other.get_by_role("alert")).to_contain_text("was used before")


@pytest.mark.nightly
def test_an_experiment_says_what_came_of_it_and_what_to_do(signed_in, world) -> None:
    page = signed_in()
    expected = {
        "keep": ("Keep", "Ship it", "Each day of waiting costs up to $"),
        "rollback": ("Roll back", "Done: withdrawn", "so waiting costs nothing now"),
        "iterate": ("Iterate", "it helps order, but harms error", "there for a fix"),
        "open": ("Can’t say yet", "Leave the canary running", "A day of waiting costs"),
    }
    for name, (word, advice, waiting) in expected.items():
        page.goto(f"{world.url}{world.path(name)}")
        verdict = page.get_by_label("Verdict", exact=True)
        expect(verdict).to_contain_text(word)
        expect(verdict).to_contain_text(advice)
        evidence = world.served.evidence(world.experiments[name])
        expect(page.locator('[data-part="value"]')).to_contain_text(waiting)
        arms = page.get_by_role("region", name="Arms")
        expect(arms.get_by_role("row", name="Treatment")).to_contain_text(
            f"{evidence['arms']['treatment']['units']:,}"
        )
        page.get_by_text("History of looks").click()
        expect(page.get_by_role("table").last).to_contain_text(
            "the test fired" if name != "open" else "points"
        )
        page.get_by_text("what programs read").click()
        shown = page.get_by_label("The verdict contract").inner_text()
        assert json.loads(shown) == world.served.contract(world.experiments[name])
        # The interval, and the units below it.
        expect(page.locator(".drawing.wide .band")).to_have_count(1)
        expect(page.locator(".drawing.wide .treatment")).to_have_count(1)
        expect(page.locator(".readout")).to_contain_text("between")


@pytest.mark.requirement("deploy.listed")
def test_a_deploy_tells_its_commit_its_diff_and_whom_it_reaches(signed_in, world) -> None:
    page = signed_in()
    page.get_by_role("link", name="Deploys", exact=True).click()
    row = page.locator(".deploys > li").filter(has_text="Lazy-load the payment form")
    steps = row.get_by_role("list", name="Steps of the ramp")
    expect(steps.get_by_role("listitem")).to_have_count(2)
    steps.get_by_role("link", name="50").click()
    assert page.url.endswith(world.deploys[HARMS])
    for word in ("grace", "Pull request 412"):
        expect(page.locator("main")).to_contain_text(word)
    share = page.locator("dt", has_text="Share of traffic").locator("+ dd")
    expect(share).to_have_text("50\u202f%")
    reach = page.get_by_label("Changed files that reach /checkout/[id]")
    assert reach.inner_text().split() == ["components/Price.tsx", "lib/cart.ts"]
    expect(page.get_by_role("row", name="lib/cart.ts")).to_contain_text("+48")
    expect(page.get_by_role("link", name="View the commit")).to_have_attribute(
        "href", f"https://git.example.com/shop/commit/{HARMS}"
    )
    page.get_by_role("link", name="Lazy-load the payment form").click()
    expect(page.get_by_label("Verdict", exact=True)).to_contain_text("Roll back")
