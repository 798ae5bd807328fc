"""The dashboard in a browser: what a product engineer sees and does."""

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
