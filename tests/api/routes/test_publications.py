"""A verdict that is published while an answer is made of it, between two of its statements."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.clients.owner import Owner

GATE = "/v1/reward/gate"
OPEN = {"verdict": "abstain", "abstain_reason": "power", "decided": False}


@pytest.fixture
def experiment(service) -> str:
    for sha in ("a" * 40, "b" * 40):
        service.deploy(sha)
    return service.register()


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
    service, experiment
) -> None:
    Owner(service)
    live = f"/dashboard/experiments/{experiment}/live"
    with after_the_first_reading_of_a_verdict(
        lambda: service.publish(experiment, {**OPEN, "decided": True})
    ):
        first = service.client.get(live)
    again = service.client.get(live, headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 200
    assert again.json()["decided"]


def test_a_gate_never_goes_on_by_evidence_that_came_with_a_breach(service, experiment) -> None:
    asked = {"policy": "no-harm:0.2", "treatment_commit": "b" * 40}
    assert service.get(GATE, params=asked).json()["phase"] == "Running"
    breach = {**OPEN, "guardrail_breaches": ["error"]}
    with after_the_first_reading_of_a_verdict(
        lambda: service.publish(experiment, breach, known={"not_worse_than": -0.01})
    ):
        answer = service.get(GATE, params=asked).json()
    assert answer["phase"] != "Successful"
    assert service.get(GATE, params=asked).json()["phase"] == "Failed"
