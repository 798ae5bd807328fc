"""The overview's checklist is one line that says how much is right, and how old that is."""

import re
from html import unescape

from orchestration.pipeline.checklist import keep_checklists
from tests.clients.owner import Owner


def checklist(owner: Owner) -> str:
    section = owner.page("/dashboard").partition('<section class="checklist"')[2]
    text = section.partition("</section>")[0]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text.partition(">")[2])).split())


def test_before_the_first_tick_it_says_that_nothing_was_looked_at_yet(owner: Owner) -> None:
    shown = checklist(owner)
    assert shown.startswith("Set-up 0 of 10 right Nothing is known to be wrong")
    assert "None of them was looked at yet: the next tick does, within a minute." in shown
    assert "as of" not in shown


def test_then_it_says_how_old_it_is(owner: Owner) -> None:
    owner.service.in_store(keep_checklists)
    shown = checklist(owner)
    # JavaScript makes `just now` or `2 min ago` of the time.
    looked = r"Set-up \d+ of 10 right, as of \d+ \w{3} \d{4}, \d\d:\d\d UTC "
    assert re.match(looked, shown), shown
    assert "looked at yet" not in shown
