"""The page of deliveries says of each announcement where it went, and how that ended."""

import re
from html import unescape

import pytest

from orchestration.outbound.delivery import deliver
from tests.clients.owner import Owner, filled
from tests.clients.receiver import Receiver, receiving

DELIVERIES = "/dashboard/settings/deliveries"
# As it stands without JavaScript, which says how long ago it was.
TIME = r"\d+ \w{3} \d{4}, \d\d:\d\d UTC"


def words(cell: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split())


def rows(page: str) -> list[dict[str, str]]:
    """The rows of the table, by the heads of their cells."""
    body = page.partition("Last deliveries</h2>")[2]
    return [
        {head: words(cell) for head, cell in re.findall(r'data-head="(\w+)">(.*?)</td>', row)}
        for row in re.findall(r"<tr>\s*(<td.*?)</tr>", body, re.DOTALL)
    ]


def tried(owner: Owner, receiver: Receiver) -> dict[str, str]:
    """The row of a delivery that tries a webhook, after its first attempt."""
    owner.service.settings(webhooks=[{"url": receiver.url}])
    owner.post(DELIVERIES, filled(owner.page(DELIVERIES)))
    deliver(owner.service.store.engine, secret=b"a secret of the tests, long enough")
    (row,) = rows(owner.page(DELIVERIES))
    return row


def test_before_the_first_delivery_the_page_says_that_there_is_none(owner) -> None:
    page = words(owner.page(DELIVERIES))
    assert "The project has no webhook. Add a webhook ." in page
    assert page.endswith("Last deliveries None yet.")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (200, rf"delivered {TIME}"),
        (204, rf"delivered {TIME}"),
        # No redirect is followed: the new address was chosen by nobody here.
        (302, rf"127\.0\.0\.1: status 302; again {TIME}"),
        (404, rf"127\.0\.0\.1: status 404; again {TIME}"),
        (500, rf"127\.0\.0\.1: status 500; again {TIME}"),
        # The receiver wants no more of it.
        (410, r"given up: 127\.0\.0\.1: status 410"),
    ],
)
def test_the_state_says_what_an_answer_means_for_the_delivery(owner, status, state) -> None:
    with receiving() as receiver:
        receiver.answer(status)
        row = tried(owner, receiver)
    assert re.fullmatch(state, row["State"]), row["State"]
    assert (row["What"], row["Attempts"]) == ("test", "1")
    assert row["Webhook"] == "http://127.0.0.1/…"


def test_a_receiver_that_is_away_is_named_by_its_host_and_a_webhook_taken_away_as_such(
    owner,
) -> None:
    with receiving() as receiver:
        pass
    assert re.fullmatch(
        rf"127\.0\.0\.1: no connection; again {TIME}", tried(owner, receiver)["State"]
    )
    owner.service.settings(webhooks=[])
    (row,) = rows(owner.page(DELIVERIES))
    assert row["Webhook"] == "removed since"


def test_the_newest_delivery_stands_first(owner) -> None:
    with receiving() as receiver:
        receiver.answer(500)
        tried(owner, receiver)
        owner.post(DELIVERIES, filled(owner.page(DELIVERIES)))
    assert [row["Attempts"] for row in rows(owner.page(DELIVERIES))] == ["0", "1"]
    assert rows(owner.page(DELIVERIES))[0]["State"] == "waits to be sent"
