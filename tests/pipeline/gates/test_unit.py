"""The unit, from events to the verdict: a router that keeps visitors, and sessions as units."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from storage.views.checklist import read_checklist
from tests.repetition import also_nightly
from tests.world import DAY, A, K

VISITORS, VISITS = 300, 4


def visited(story, *, keeps: bool, begin: float = 0, live: bool = False) -> str:
    """Registers a canary at 50 % whose visitors come four times, and order in 60 % of visits."""
    draw = Random(3)
    story.deploy(A, minutes=begin - DAY)
    story.deploy(K, minutes=begin, base=A, allocation=0.5)
    for visit in range(VISITS):
        arms: dict[str, list[int]] = {A: [], K: []}
        for visitor in range(VISITORS):
            arms[(A, K)[visitor % 2 if keeps else draw.randrange(2)]].append(visitor)
        for commit, visitors in arms.items():
            sessions = story.crowd(
                commit,
                start=begin + 1 + 60 * visit,
                minutes=30,
                units=len(visitors),
                rates={"order": 0.6},
            )
            users = dict(zip(sessions, visitors, strict=True))
            for event in story.events:
                if event["session_id"] in users:
                    event["user_ref"] = f"visitor {users[event['session_id']]}"
    story.send(live=live)
    return story.register(treatment_commit=K)


def test_a_router_that_keeps_visitors_is_held_by_unit_which_says_the_cure(story) -> None:
    story.settings(unit="session")
    experiment = visited(story, keeps=True)
    assert story.answer(experiment, minutes=DAY) == ("abstain", "interacting", False)
    evidence = story.evidence(experiment)
    assert evidence["gates"]["interacting_because"] == ["unit"]
    assert evidence["gates"]["visitors_kept"] == 1.0
    assert "the router keeps visitors in their arm" in evidence["sentence"]
    assert evidence["advice"][0].startswith("The router keeps visitors, not sessions: set the")


@pytest.mark.parametrize(("keeps", "unit"), also_nightly([(True, "user")], [(False, "session")]))
def test_by_itself_an_experiment_counts_what_its_router_keeps_and_the_checklist_says_it(
    story, keeps, unit
) -> None:
    yesterday = (datetime.now(UTC) - story.begin) / timedelta(minutes=1) // 5 * 5 - DAY
    experiment = visited(story, keeps=keeps, begin=yesterday, live=True)
    story.tick()
    assert story.evidence(experiment)["policy"]["unit"] == unit
    for chosen in ("auto", "session", "user"):
        story.settings(unit=chosen)
        line = story.in_store(lambda c: read_checklist(c, story.project_id))[-1]
        assert line.check == "unit fits the router"
        assert line.ok == (chosen in ("auto", unit))
        assert ("keeps visitors" in line.seen) == keeps
        assert (f"`unit` to `{unit}`" in line.fix) == (not line.ok)


@pytest.mark.nightly
def test_under_a_sample_which_takes_sessions_an_experiment_counts_sessions(story) -> None:
    yesterday = (datetime.now(UTC) - story.begin) / timedelta(minutes=1) // 5 * 5 - DAY
    visited(story, keeps=True, begin=yesterday, live=True)
    story.settings(sample_rate=0.5)
    sampled = story.register(treatment_commit=K, target_metric="activation")
    story.tick()
    assert story.evidence(sampled)["policy"]["unit"] == "session"


def test_with_users_as_units_a_router_that_keeps_visitors_stops_nothing(story) -> None:
    story.settings(unit="user")
    experiment = visited(story, keeps=True)
    assert story.answer(experiment, minutes=DAY) == ("abstain", "power", False)
    evidence = story.evidence(experiment)
    assert evidence["gates"]["visitors_kept"] is None
    assert evidence["counts"]["in_cells"] <= VISITORS


def test_a_lottery_for_each_session_is_not_held(story) -> None:
    story.settings(unit="session")
    experiment = visited(story, keeps=False)
    assert story.answer(experiment, minutes=DAY) == ("abstain", "power", False)
    assert story.evidence(experiment)["gates"]["visitors_kept"] == pytest.approx(0, abs=0.3)


@pytest.mark.nightly
def test_an_experiment_that_unit_held_at_every_look_is_no_attempt(story) -> None:
    """Its window is so long that its first look comes after visitors have come back."""
    story.settings(unit="session", metrics={"order": {"window_seconds": 86400}}, guardrails=[])
    experiment = visited(story, keeps=True)
    story.tick(minutes=2 * DAY)
    assert story.evidence(experiment)["gates"]["held_throughout"] == ["unit"]
    assert story.post(f"/v1/reward/{experiment}/close", {}).status_code == 200
    story.tick()
    story.settings(unit="user")
    again = story.register(treatment_commit=K)
    assert again != experiment
    story.tick()
    assert story.evidence(again)["policy"]["attempt"] == 1
