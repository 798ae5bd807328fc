"""A page that is open while its evidence grows."""

import json

import pytest
from playwright.sync_api import Route, expect

from tests.browser.dashboard.gallery import LATE

pytestmark = pytest.mark.process


def test_an_open_experiment_follows_its_evidence_without_being_loaded_anew(
    signed_in, world
) -> None:
    page = signed_in(world.gallery.story)
    gallery = world.gallery
    page.goto(f"{world.url}/dashboard/experiments/{gallery.followed}")
    page.evaluate("window.same = true")
    page.get_by_text("what programs read").click()
    live = page.locator("[data-live]")
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(live).to_have_attribute("data-asked", "1")
    expect(page.get_by_label("Verdict", exact=True)).to_contain_text("Can’t say yet")
    # What other tests look at gets no answer from it: theirs have no traffic then.
    gallery.story.tick(minutes=LATE + 900)
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(live).to_have_attribute("data-stopped", "")
    assert page.evaluate("window.same") is True
    contract = gallery.story.contract(gallery.followed)
    assert contract["power_state"]["decided"]
    expect(page.get_by_label("Verdict", exact=True)).to_contain_text("This verdict is final")
    shown = page.get_by_label("The verdict contract").inner_text()
    assert json.loads(shown) == contract


@pytest.mark.nightly
def test_a_page_that_is_told_nothing_new_asks_again_when_it_was_told_to(signed_in, world) -> None:
    page = signed_in()
    # Sooner than the page was asked at first, as the service does when a look is due.
    headers = {"Retry-After": "2"}

    def sooner(route: Route) -> None:
        response = route.fetch()
        assert response.status == 304
        route.fulfill(response=response, headers={**response.headers, **headers})

    page.route("**/live", sooner)
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.goto(f"{world.url}{world.path('open')}")
    live = page.locator("[data-live]")
    wait = int(live.get_attribute("data-wait") or 0)
    assert wait > 2
    page.clock.run_for(1000 * wait)
    expect(live).to_have_attribute("data-asked", "1")
    page.clock.run_for(2000)
    expect(live).to_have_attribute("data-asked", "2")
