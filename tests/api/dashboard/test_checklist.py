"""The overview's checklist is a line that says how much is right, and how old that is."""

import re
from html import unescape

from tests.clients.owner import Owner


def checklist(owner: Owner) -> str:
    section = owner.page("/dashboard").partition('<section class="checklist"')[2]
    text = section.partition("</section>")[0]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text.partition(">")[2])).split())


def test_it_says_how_much_is_right_and_how_old_that_is(owner) -> None:
    shown = checklist(owner)
    # JavaScript makes `just now` or `2 min ago` of the time.
    looked = r"Set-up \d+ of 11 right, as of \d+ \w{3} \d{4}, \d\d:\d\d UTC "
    assert re.match(looked, shown), shown
