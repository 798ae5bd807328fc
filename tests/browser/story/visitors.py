"""Those who come to the shop: each new to it, looks around, and orders or does not."""

from collections import Counter
from dataclasses import dataclass, field

from numpy.random import Generator
from playwright.sync_api import BrowserContext

from tests.browser.story.checkout import NEW, OLD

# How many order, of those whom a build serves.
RATES = {OLD: 0.2, NEW: 0.7}


@dataclass(kw_only=True)
class Visitors:
    """People at a browser, which forgets each before the next comes."""

    context: BrowserContext
    url: str
    chance: Generator
    came: Counter[str] = field(default_factory=Counter)
    ordered: Counter[str] = field(default_factory=Counter)

    def come(self, count: int) -> None:
        for _ in range(count):
            self._come()

    def _come(self) -> None:
        self.context.clear_cookies()
        # A tab of its own has a memory of its own.
        page = self.context.new_page()
        page.goto(self.url)
        page.get_by_role("link", name="To the checkout").click()
        button = page.get_by_role("button")
        shown = button.inner_text()
        self.came[shown] += 1
        # Nobody decides before the page is there.
        page.wait_for_load_state("load")
        if self.chance.random() < RATES[shown]:
            self.ordered[shown] += 1
            button.click()
            page.get_by_text("Thank you").wait_for()
        # Goes elsewhere: what the page has is sent at once.
        page.goto("about:blank")
        page.close()
