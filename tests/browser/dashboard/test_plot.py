"""The plot of an experiment, as a reader sees it."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from tests.repetition import also_nightly

pytestmark = pytest.mark.process


def test_the_plot_names_its_moments_the_ramp_and_every_lane_and_a_look_its_numbers(
    signed_in, world
) -> None:
    page = signed_in()
    page.goto(f"{world.url}{world.path('iterate')}")
    plot = page.locator(".drawing.wide")
    contract = world.served.contract(world.experiments["iterate"])
    document = world.served.evidence(world.experiments["iterate"])
    arms = document["arms"]
    treated, controlled = (arms[name]["units"] for name in ("treatment", "control"))
    for words in (
        "fired and decided",
        "share 50\u202f%",
        f"{treated} sessions of treatment, {controlled} of control",
        "gates: no check failed",
        "error: breached",
        # A guardrail says in its lane what it says in the table.
        "arrival: no harm seen",
    ):
        expect(plot).to_contain_text(words)
    readout = page.locator(".readout")
    for end in (*contract["ci"], contract["lift"]):
        expect(readout).to_contain_text(f"{100 * end:+.2f}".replace("-", "\N{MINUS SIGN}"))
    relative = f"(+{100 * contract['lift'] / arms['control']['rate']:.0f}\u202f%)"
    expect(readout).to_contain_text(relative)
    expect(readout).to_contain_text(f"fires at {1 / document['policy']['level']:.3g}")
    # A pointer shows the numbers of any look; the last's stand below.
    last = plot.locator(".look title").last.text_content()
    assert readout.text_content() == f"{last}."


@pytest.mark.parametrize(
    ("scheme", "width"),
    also_nightly([("dark", 360)], [("dark", 1280), ("light", 360), ("light", 1280)]),
)
def test_a_phone_has_a_plot_of_its_own_and_letters_keep_their_size_and_contrast(
    signed_in, world, width, scheme
) -> None:
    page = signed_in(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(f"{world.url}{world.path('keep')}")
    (drawing,) = [each for each in page.locator(".drawing").all() if each.is_visible()]
    text = drawing.locator("text").first
    box = text.bounding_box()
    assert box is not None
    assert box["height"] >= 11
    ink, card = (
        page.evaluate("(element) => getComputedStyle(element).fill", text.element_handle()),
        page.evaluate("(e) => getComputedStyle(e).backgroundColor", drawing.element_handle()),
    )
    assert ink != card
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.nightly
def test_times_are_told_in_the_reader_s_zone(signed_in, world) -> None:
    page = signed_in(timezone_id="Asia/Tokyo")
    page.goto(f"{world.url}{world.path('iterate')}")
    as_of = datetime.fromisoformat(world.served.evidence(world.experiments["iterate"])["as_of"])
    there = as_of.astimezone(ZoneInfo("Asia/Tokyo"))
    shown = page.locator(f'time[datetime="{as_of:%Y-%m-%dT%H:%M:%SZ}"]').first
    expect(shown).to_contain_text(f"{there:%d %b %Y, %H:%M} GMT+9")
    expect(shown).to_have_attribute("title", f"{as_of:%d %b %Y, %H:%M} UTC")
    # Those of the plot say that they are in UTC.
    expect(page.locator(".readout")).to_contain_text(f"{as_of:%d %b %H:%M} UTC")
