"""The plot of an experiment, as it is drawn."""

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from playwright.sync_api import Page

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
