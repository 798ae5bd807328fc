"""Posting sends everything once it is let in, and says why when it is not."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from canary_traffic.posting import Delivery, Posted, Refused, answer, batches, pause, post

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
Handler = Callable[[httpx2.Request], httpx2.Response]


def client(handler: Handler) -> httpx2.Client:
    return httpx2.Client(transport=httpx2.MockTransport(handler), base_url="http://service")


def deliveries(count: int) -> list[Delivery]:
    return [
        Delivery(at=START + timedelta(seconds=second), body={"event_id": str(second)})
        for second in range(count)
    ]


def accepting(request: httpx2.Request) -> httpx2.Response:
    sent = json.loads(gzip.decompress(request.content))["events"]
    return httpx2.Response(202, json={"accepted": len(sent), "late": 0, "rejected": []})


def test_batches_keep_the_order_and_the_limit_of_a_request() -> None:
    made = list(batches(deliveries(1001)))
    assert [len(batch.bodies) for batch in made] == [200, 200, 200, 200, 200, 1]
    events = [body for batch in made for body in batch.bodies]
    assert events == [delivery.body for delivery in deliveries(1001)]


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_busy_service_is_asked_again(status) -> None:
    answers = [httpx2.Response(status, headers={"Retry-After": "0"}) for _ in range(3)]

    def busy_at_first(request: httpx2.Request) -> httpx2.Response:
        return answers.pop() if answers else accepting(request)

    with client(busy_at_first) as service:
        posted = Posted()
        post(service, batches(deliveries(3)), key="wk_1", replay=False, posted=posted)
    assert (posted.counts["requests"], posted.counts["accepted"]) == (1, 3)


def test_a_pause_is_as_long_as_the_service_says_or_grows() -> None:
    assert pause("45", 0) == 45
    assert pause("0", 3) == 0
    for unsaid in (None, "", "soon", "-1", "Sat, 21 Nov 2026 09:00:00 GMT"):
        assert [pause(unsaid, attempt) for attempt in (0, 1, 2, 30)] == [0.5, 1, 2, 10]


def gone(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("refused", request=request)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (lambda _: httpx2.Response(503, headers={"Retry-After": "5"}), "stays busy"),
        (gone, "does not answer"),
        (lambda _: httpx2.Response(200, text="<html>"), "200"),
    ],
    ids=["busy", "gone", "no JSON"],
)
def test_a_service_that_does_not_serve_is_given_up_with_what_it_did(answers, said) -> None:
    with client(answers) as service, pytest.raises(Refused, match=said):
        answer(service, "GET", "/v1/reward", key="rk_1", patience=1 if said == "stays busy" else 0)
