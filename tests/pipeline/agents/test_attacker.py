"""An agent that wants a keep without merit: what each of its tries gets stands in the docs."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

pytestmark = pytest.mark.shared_store


PAGE = Path(__file__).parents[3] / "docs" / "public-key.md"
A, WORSE, K, L = "aaaaaaa1", "bbbbbbb2", "ccccccc3", "ddddddd4"
EQUAL = {"order": 0.1}
AGENT = "agent-7"


def canary(story: Any, sha: str, *, minutes: float, **commit: Any) -> None:
    story.deploy(sha, 0.5, minutes=minutes, base=A, commit={"actor": AGENT, **commit})


def begun(story: Any, *, live: bool = False, **commit: Any) -> None:
    """A canary without effect beside what users have, and an hour of their traffic."""
    story.deploy(A, minutes=-60)
    canary(story, K, minutes=0, **commit)
    for sha in (A, K):
        story.crowd(sha, start=0, minutes=60, units=300, rates=EQUAL)
    story.send(live=live)


def frozen_attempt(story: Any, experiment: str) -> int:
    statement = text("SELECT attempt FROM experiments WHERE experiment_id = :id")
    return story.in_store(lambda c: c.execute(statement, {"id": experiment}).scalar_one())


def refused(story: Any, **body: Any) -> str:
    """The answer to a registration that the project's settings lock."""
    answer = story.post("/v1/reward/register", {"treatment_commit": K, **body})
    return f"{answer.status_code} {answer.json().get('code', 'registered')}"


def the_same_again(story: Any) -> str:
    begun(story)
    first = story.register(treatment_commit=K)
    story.tick(minutes=120)
    assert story.evidence(first)["totals"]["W"] > 0
    story.post(f"/v1/reward/{first}/close", {})
    story.tick(minutes=121)
    again = story.register(treatment_commit=K)
    # Its registration is now, by the clock of the store: what was sent for before counts no more.
    story.tick(minutes=122)
    assert story.get(f"/v1/reward/{again}/evidence").status_code == 404
    return f"attempt {frozen_attempt(story, again)}"


def a_trivial_commit(story: Any) -> str:
    begun(story, pull_request=7)
    story.register(treatment_commit=K)
    story.tick(minutes=120)
    canary(story, L, minutes=121, pull_request=7)
    return _second(story, treatment_commit=L)


def another_metric(story: Any) -> str:
    begun(story)
    story.register(treatment_commit=K)
    story.tick(minutes=120)
    return _second(story, treatment_commit=K, target_metric="basket")


def _second(story: Any, **asked: Any) -> str:
    experiment = story.register(**asked)
    story.tick(minutes=125)
    return f"attempt {story.evidence(experiment)['policy']['attempt']}"


def no_guardrails(story: Any) -> str:
    story.settings(locked=["guardrails"])
    begun(story)
    return refused(story, guardrails=[])


def its_own_control(story: Any) -> str:
    story.settings(locked=["guardrails", "control_commit"])
    begun(story)
    return refused(story, control_commit=WORSE)


def its_best_route(story: Any) -> str:
    story.settings(locked=["guardrails", "routes"])
    begun(story)
    return refused(story, routes=["/lucky"])


def registered_late(story: Any, **chosen: Any) -> str:
    story.registration = {}
    begun(story, live=True)
    late = story.register(treatment_commit=K, **chosen)
    bound = story.bound(late)
    if bound["starts_at"] == bound["registered_at"]:
        return "no past units"
    story.tick(minutes=2880)
    arms = story.evidence(late)["arms"]
    # Registered at once, it would have had this: the whole hour.
    seen = [arms[arm]["units"] for arm in ("treatment", "control")]
    return "the whole time" if seen == [300, 300] else f"{seen} units"


TRIES: dict[str, Callable[[Any], str]] = {
    "the same change again, after its answer": the_same_again,
    "a trivial commit on top": a_trivial_commit,
    "another metric": another_metric,
    "no guardrails": no_guardrails,
    "its own control": its_own_control,
    "the route where it does best": its_best_route,
    "registering late, once the numbers look good": registered_late,
    "the metric that looks best, late": partial(registered_late, target_metric="order"),
}


def answers_of_the_page() -> dict[str, str]:
    """What the page says that each try gets."""
    section = PAGE.read_text().split("## An agent that wants a keep")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| `([^`|]+)`", section, re.MULTILINE)
    return {tried.strip(): outcome for tried, outcome in rows}


def test_the_page_tells_of_every_try() -> None:
    assert answers_of_the_page().keys() == TRIES.keys()


@pytest.mark.parametrize("tried", TRIES)
def test_a_try_gets_what_the_page_says(story, tried) -> None:
    assert TRIES[tried](story) == answers_of_the_page()[tried]
