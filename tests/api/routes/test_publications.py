"""A verdict that is published while an answer is made of it, between two of its statements."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from storage.tenants.keys import KeyKind
from tests.stores.publication import publish

GATE = "/v1/reward/gate"
OPEN = {"verdict": "abstain", "abstain_reason": "power", "decided": False}


@pytest.fixture
def experiment(service: Any) -> str:
    """An experiment of which nothing is known yet."""
    for sha in ("a" * 40, "b" * 40):
        service.post("/v1/deploys", {"commit": {"sha": sha}})
    return service.post("/v1/reward/register", {}).json()["experiment_id"]


def published(
    service: Any, experiment: str, answer: dict[str, Any], *, not_worse_than: float | None = None
) -> None:
    """Publishes a verdict with its evidence."""
    document = {
        "as_of": None,
        "sentence": "What is known.",
        "policy": {"target": {"better": "higher"}},
        "known": {"not_worse_than": not_worse_than},
    }
    service.in_store(lambda connection: publish(connection, experiment, answer, document))


@contextmanager
def after_the_first_reading_of_a_verdict(publish: Callable[[], None]) -> Generator[None]:
    """Publishes once, before whoever read of a verdict sends the next statement."""
    waiting = [publish]

    def sent(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if waiting and "verdicts" in statement:
            waiting.pop()()

    event.listen(Engine, "after_cursor_execute", sent)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", sent)
    assert not waiting


def test_a_page_never_takes_what_it_shows_for_the_news_that_came_meanwhile(
    service: Any, experiment: str
) -> None:
    key = service.project.keys[KeyKind.PROJECT]
    own = {"Sec-Fetch-Site": "same-origin"}
    service.client.post("/dashboard/sign-in", data={"secret": key}, headers=own)
    live = f"/dashboard/experiments/{experiment}/live"
    with after_the_first_reading_of_a_verdict(
        lambda: published(service, experiment, {**OPEN, "decided": True})
    ):
        first = service.client.get(live)
    again = service.client.get(live, headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 200
    assert again.json()["decided"]


def test_a_gate_never_goes_on_by_evidence_that_came_with_a_breach(
    service: Any, experiment: str
) -> None:
    asked = {"policy": "no-harm:0.2", "treatment_commit": "b" * 40}
    assert service.get(GATE, params=asked).json()["phase"] == "Running"
    breach = {**OPEN, "guardrail_breaches": ["error"]}
    with after_the_first_reading_of_a_verdict(
        lambda: published(service, experiment, breach, not_worse_than=-0.01)
    ):
        answer = service.get(GATE, params=asked).json()
    assert answer["phase"] != "Successful"
    assert service.get(GATE, params=asked).json()["phase"] == "Failed"
