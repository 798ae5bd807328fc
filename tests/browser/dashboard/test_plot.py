"""The plot of an experiment, as it is drawn."""

import re
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from tests.browser.dashboard.world import World

pytestmark = pytest.mark.process

# What is drawn on a canvas stands nowhere else.
LISTEN = """
window.drawn = [];
const original = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  window.drawn.push(text);
  return original.call(this, text, ...place);
};
"""
# As the live page does with what it is told.
SHOW = """(scale) => {
  const told = JSON.parse(document.querySelector("[data-plot]").dataset.plot);
  for (const name of ["low", "lift", "high", "range"])
    told[name] = told[name].map((value) => scale * value);
  window.drawn = [];
  window.plot(told);
  return told.range;
}"""


@pytest.mark.parametrize("state", ["mean_kept", "keep"])
def test_an_axis_counts_evenly_whatever_its_scale(
    signed_in: Callable[..., Page], world: World, state: str
) -> None:
    page = signed_in(world.gallery.story.service) if state == "mean_kept" else signed_in()
    page.add_init_script(LISTEN)
    kept = world.gallery.path("mean_kept") if state == "mean_kept" else world.path(state)
    page.goto(f"{world.url}{kept}")
    for scale in (0.5, 1, 20, 300, 4000):
        low, high = page.evaluate(SHOW, scale)
        page.wait_for_function("window.drawn.includes('0')")
        texts: list[str] = page.evaluate("window.drawn")
        labels = [text for text in texts if re.fullmatch(r"[+−]?[\d.]+", text)]
        ticks = sorted({float(text.replace("−", "-")) for text in labels})
        step = ticks[1] - ticks[0]
        assert [after - before for before, after in pairwise(ticks)] == pytest.approx(
            [step] * (len(ticks) - 1)
        )
        # From end to end, less than a step is left over on either side.
        assert low <= ticks[0] < low + step, ticks
        assert high - step < ticks[-1] <= high, ticks


def drawn(page: Page) -> str:
    return "\n".join(page.evaluate("window.drawn"))


def test_the_picture_names_its_ends_its_moments_the_ramp_and_every_lane(
    signed_in: Callable[..., Page], world: World
) -> None:
    page = signed_in()
    page.add_init_script(LISTEN)
    page.goto(f"{world.url}{world.path('iterate')}")
    page.wait_for_function("window.drawn?.some((text) => text.includes('decided'))")
    texts = drawn(page)
    contract = world.story.contract(world.experiments["iterate"])
    control = world.story.evidence(world.experiments["iterate"])["arms"]["control"]
    for end in (*contract["ci"], contract["lift"]):
        assert f"{100 * end:+.2f}".replace("-", "−") in texts
    assert f"(+{100 * contract['lift'] / control['rate']:.0f}\u202f%)" in texts
    assert "fired and decided" in texts
    # The ramp's only step, and each arm's units as the evidence counts them.
    assert "share 50\u202f%" in texts
    assert f"{control['units']} control" in texts
    assert f"{control['units']} treatment" in texts
    lanes = page.get_by_role("list", name="Gates and guardrails over time").get_by_role("listitem")
    expect(lanes.filter(has_text="gates")).to_contain_text("none holds")
    expect(lanes.filter(has_text="error")).to_contain_text("breached")
    # A guardrail says in its lane what it says in the table.
    expect(lanes.filter(has_text="arrival")).to_contain_text("no harm seen")
    # One measure of evidence on the whole page, beside the value at which the test fires.
    for place in ("[data-says]", "[data-readout]"):
        expect(page.locator(place)).to_contain_text(
            re.compile(r"e-value [\d,.]+, the test fires at")
        )
    fires = 1 / world.story.evidence(world.experiments["iterate"])["policy"]["level"]
    expect(page.locator("[data-readout]")).to_contain_text(f"fires at {fires:.3g}")


def test_a_reader_zooms_by_dragging_by_buttons_and_by_keys_and_comes_back(
    signed_in: Callable[..., Page], world: World
) -> None:
    page = signed_in()
    page.goto(f"{world.url}{world.path('open')}")
    canvas, whole = page.locator("[data-canvas]"), page.get_by_role("button", name="Whole span")
    expect(whole).to_be_disabled()
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 120, steps=4)
    page.mouse.up()
    expect(whole).to_be_enabled()
    # What came meanwhile is shown without losing the reader's place.
    page.evaluate(SHOW, 1)
    expect(whole).to_be_enabled()
    whole.click()
    expect(whole).to_be_disabled()
    page.get_by_role("button", name="Zoom in").click()
    expect(whole).to_be_enabled()
    page.get_by_role("button", name="Zoom out").click()
    expect(whole).to_be_disabled()
    canvas.focus()
    page.keyboard.press("+")
    expect(whole).to_be_enabled()
    page.keyboard.press("0")
    expect(whole).to_be_disabled()


def test_times_are_told_in_the_reader_s_zone(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(timezone_id="Asia/Tokyo")
    page.goto(f"{world.url}{world.path('iterate')}")
    as_of = datetime.fromisoformat(world.story.evidence(world.experiments["iterate"])["as_of"])
    there = as_of.astimezone(ZoneInfo("Asia/Tokyo"))
    expect(page.locator("[data-readout]")).to_contain_text(f"{there:%H:%M} GMT+9")
    told = page.locator(f'time[datetime="{as_of:%Y-%m-%dT%H:%M:%SZ}"]').first
    expect(told).to_contain_text(f"{there:%d %b %Y, %H:%M} GMT+9")
    expect(told).to_have_attribute("title", f"{as_of:%d %b %Y, %H:%M} UTC")
