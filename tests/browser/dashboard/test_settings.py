"""The settings' pages in a browser: an owner makes keys, changes rules, and loses nothing typed."""

import secrets
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from storage.tenants.keys import Role
from storage.tenants.projects import create_project
from storage.tenants.sign_ins import create_link

pytestmark = pytest.mark.process

SETTINGS = "/dashboard/settings"
PHONE = {"viewport": {"width": 360, "height": 740}}


@pytest.fixture
def owner(context, world) -> Callable[..., Page]:
    """Opens a profile that signed in as owner of a project of its own."""

    def opened(**options: object) -> Page:
        with world.served.store.engine.begin() as connection:
            project = create_project(connection, secrets.token_hex(6))
            code = create_link(connection, project.project_id, Role.OWNER)
        page = context(**options).new_page()
        page.goto(f"{world.url}/dashboard/sign-in")
        if options.get("java_script_enabled", True):
            page.goto(f"{world.url}/dashboard/sign-in#{code}")
        else:
            page.get_by_label("Project key").fill(code)
            page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{world.url}/dashboard")
        return page

    return opened


@pytest.mark.nightly
def test_a_key_is_made_used_and_revoked(owner, context, world) -> None:
    page = owner()
    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Settings", exact=True).get_by_role("link", name="Keys").click()
    page.get_by_label("project registers").check()
    page.get_by_role("button", name="Create key").click()
    made = page.get_by_label("The new key").inner_text()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == made
    expect(page.get_by_label("The request that registers")).to_contain_text(f'Key: {made}"')
    reader = context().new_page()
    reader.goto(f"{world.url}/dashboard/sign-in")
    reader.get_by_label("Project key").fill(made)
    reader.keyboard.press("Enter")
    reader.wait_for_url(f"{world.url}/dashboard")
    page.goto(f"{world.url}{SETTINGS}/keys")
    expect(page.get_by_text(made)).to_have_count(0)
    row = page.get_by_role("listitem").filter(has_text=made[:8])
    expect(row).to_contain_text("last used")
    button = row.get_by_role("button", name="Revoke")
    expect(button).to_be_hidden()
    row.get_by_text("Revoke").first.click()
    button.click()
    expect(page.get_by_role("status")).to_have_text("Revoked.")
    reader.reload()
    expect(reader.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.nightly
def test_on_a_phone_the_navigation_takes_one_line_with_room_for_all(owner) -> None:
    links = owner(viewport={"width": 390, "height": 844}).get_by_label("Pages").get_by_role("link")
    boxes = [link.bounding_box() for link in links.all()]
    assert [link.inner_text() for link in links.all()][-1] == "Settings"
    assert len({box["y"] for box in boxes if box is not None}) == 1
    assert all(box is not None and box["x"] + box["width"] <= 390 for box in boxes)


def test_forms_and_their_faults_are_accessible_and_fit_a_phone(owner, world) -> None:
    page = owner(**PHONE)

    def look() -> None:
        violations = Axe().run(page).response["violations"]
        assert [
            violation["id"]
            for violation in violations
            if violation["impact"] in ("serious", "critical")
        ] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["viewport"]["width"]

    page.goto(f"{world.url}{SETTINGS}/webhooks")
    page.get_by_label("Address", exact=True).fill("https://hooks.example/secret")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("status")).to_have_text("Saved.")
    page.get_by_text("Edit").first.click()
    page.get_by_label("Variable of the token").first.fill("PATH")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("must begin")).to_be_visible()
    page.get_by_text("Remove").first.click()
    look()
    page.goto(f"{world.url}{SETTINGS}/keys")
    page.get_by_text("Revoke").first.click()
    look()
    page.goto(f"{world.url}{SETTINGS}")
    page.get_by_text("Which events and senders count").first.click()
    page.get_by_label("Allowed origins").fill("shop")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("is no origin")).to_be_visible()
    look()


@pytest.mark.nightly
def test_save_is_in_reach_and_what_nobody_changed_is_folded(owner, world) -> None:
    page = owner()
    page.goto(f"{world.url}{SETTINGS}")
    save = page.get_by_role("button", name="Save settings")
    expect(save).to_be_in_viewport(ratio=1)
    horizon = page.get_by_label("Horizon, in days")
    if not horizon.is_visible():
        page.get_by_text("How it is decided").first.click()
    horizon.fill("21")
    save.click()
    expect(page.get_by_role("status")).to_have_text("Saved.")
    # A changed value is seen, and counted, without a click.
    expect(horizon).to_be_visible()
    expect(page.locator("details", has_text="How it is decided")).to_contain_text("1 changed")
    horizon.fill("28")
    save.click()
    expect(page.get_by_role("status")).to_have_text("Saved.")
    expect(horizon).to_be_hidden()
    expect(page.locator("details", has_text="How it is decided")).to_contain_text("as by default")
