"""An experiment counts the sample that it froze, however the setting changes while it is open."""

from typing import Any

import pytest
from sqlalchemy import text

from storage.tenants.keys import KeyKind
from storage.tenants.sample import Sample, salt_of
from tests.world import DAY, A, K

B, L = "bbbbbbb2", "ddddddd4"


def sample(story: Any, rate: float, kind: str = "session") -> Sample:
    return Sample(salt=salt_of(story.project_id), rates={kind: rate})


def canary(story: Any, *, units: int = 600, **members: Any) -> list[str]:
    """A canary's history of ten hours, stored whole; returns its sessions."""
    story.canary()
    sessions = [
        *story.crowd(A, start=0, minutes=600, units=units, rates={"order": 0.10}, **members),
        *story.crowd(K, start=0, minutes=600, units=units, rates={"order": 0.30}, **members),
    ]
    story.send()
    return sessions


def counted(story: Any, experiment: str) -> set[str]:
    with story.store.engine.connect() as connection:
        query = text("SELECT unit FROM exposures WHERE experiment_id = :id")
        return set(connection.execute(query, {"id": experiment}).scalars())


def live(story: Any, session: str) -> dict[str, Any]:
    """The answer to a browser that sends an event now, by a key that no worker remembers."""
    key = {"X-Service-Project-Key": story.new_key(KeyKind.PUBLIC)}
    body = {"event": "order", "session_id": session, "commit": K}
    answer = story.client.post("/v1/events", json=body, headers=key)
    assert answer.status_code == 202, answer.text
    return answer.json()


def close(story: Any, experiment: str) -> None:
    answer = story.post(f"/v1/reward/{experiment}/close", {})
    assert answer.status_code == 200, answer.text
    story.tick()
    assert story.contract(experiment)["power_state"]["decided"]


def test_an_experiment_counts_its_sample_of_what_is_stored(story) -> None:
    story.settings(sample_rate=0.5)
    sessions = canary(story)
    experiment = story.register(treatment_commit=K)
    # A higher rate stores more, and changes nothing for who is open.
    story.settings(sample_rate=1)
    story.tick(minutes=DAY)
    expected = {name for name in sessions if sample(story, 0.5).takes(name, None)}
    assert counted(story, experiment) == expected
    assert sum(n1 + n0 for _, _, n1, _, n0, _ in story.cells(experiment)) == len(expected)
    assert story.evidence(experiment)["policy"]["sample_rate"] == 0.5
    story.require_the_counts_to_add_up()


def test_users_are_counted_by_the_sample_of_users(story) -> None:
    story.settings(unit="user", sample_rate=0.5)
    story.canary()
    for number in range(60):
        story.units_of((A, K)[number % 2], minutes=5, units=2, user_ref=f"user-{number}")
    experiment = story.judged(minutes=DAY)
    units = counted(story, experiment)
    assert 15 < len(units) < 45
    assert all(sample(story, 0.5, "user").takes("", bytes.fromhex(unit)) for unit in units)
    story.require_the_counts_to_add_up()


@pytest.mark.nightly
def test_what_a_change_is_worth_is_told_of_all_units(story) -> None:
    story.settings(sample_rate=0.25)
    canary(story, units=4000)
    experiment = story.register(
        treatment_commit=K, target_metric={"name": "order", "value_per_conversion": 2}
    )
    story.tick(minutes=DAY)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert contract["verdict"] == "keep"
    units = sum(arm["units"] for arm in evidence["arms"].values())
    measured = contract["lift"] * evidence["sessions"]["per_day"] * 2
    assert units < 4000
    assert contract["value_at_risk"] == pytest.approx(4 * measured)
    of_a_unit = contract["value_at_risk"] / contract["lift"]
    assert evidence["value_range"]["low"] == pytest.approx(of_a_unit * contract["ci"][0])


def test_a_lower_rate_keeps_the_events_of_units_that_an_open_experiment_counts(story) -> None:
    sessions = canary(story)
    first = story.register(treatment_commit=K)
    story.settings(sample_rate=0.1)
    outside = next(name for name in sessions if not sample(story, 0.1).takes(name, None))
    assert live(story, outside) == {"accepted": 1, "late": 0, "rejected": []}
    # Who binds meanwhile counts the smaller sample from its first unit on.
    second = story.register(treatment_commit=K, target_metric="page_view")
    story.tick(minutes=DAY)
    assert counted(story, first) == set(sessions)
    assert counted(story, second) == {
        name for name in sessions if sample(story, 0.1).takes(name, None)
    }
    story.require_the_counts_to_add_up()
    close(story, first)
    assert live(story, outside)["sampled_out"] == 1
    # Of the second's own units nothing is left out.
    for unit in sorted(counted(story, second))[:5]:
        assert live(story, unit)["accepted"] == 1


def test_the_largest_rate_of_open_experiments_is_in_force(story) -> None:
    story.settings(sample_rate=0.5)
    sessions = canary(story)
    story.register(treatment_commit=K)
    story.settings(sample_rate=0.2)
    story.register(treatment_commit=K, target_metric="page_view")
    story.settings(sample_rate=0.1)
    response = live(story, sessions[0])
    assert response["sampling"] == {"salt": salt_of(story.project_id), "session": 0.5}
    story.settings(unit="user")
    assert live(story, sessions[0])["sampling"]["user"] == 0.1
    assert live(story, sessions[0])["sampling"]["session"] == 0.5
