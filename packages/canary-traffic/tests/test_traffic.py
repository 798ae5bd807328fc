"""Drawn traffic holds what its scenario says, and its truth is what its events hold."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from canary_traffic.canary import Scenario, Traffic, traffic
from canary_traffic.posting import Delivery
from hypothesis import given
from hypothesis import strategies as st

from tests.repetition import examples

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
HALF_DAY = Scenario(
    start=START,
    end=START + timedelta(hours=12),
    control="c0ffee1",
    treatment="bada551",
    baseline=0.1,
)
EVERYTHING = replace(
    HALF_DAY,
    relative_lift=0.3,
    rhythm=0.6,
    routes=("/", "/cart"),
    pages=1.5,
    control_errors=0.02,
    treatment_errors=0.03,
    duplicated=0.1,
    disordered=0.3,
    late=0.05,
)


def drawn(scenario: Scenario, seed: int = 7) -> Traffic:
    return traffic(scenario, np.random.default_rng(seed))


def events(of: Traffic) -> list[dict[str, object]]:
    return [sent.body for sent in of.deliveries()]


def occurred(body: dict[str, object]) -> datetime:
    return datetime.fromisoformat(str(body["occurred_at"]))


def counted(deliveries: list[Delivery], scenario: Scenario) -> dict[str, tuple[int, int, int]]:
    """Units, conversions and errors per arm, read from the bodies as the service would."""
    bodies = [sent.body for sent in deliveries]
    commit = {body["session_id"]: body["commit"] for body in bodies}
    exposed = {}
    for body in bodies:
        at, session = occurred(body), body["session_id"]
        exposed[session] = min(at, exposed.get(session, at))
    converted = {
        body["session_id"]
        for body in bodies
        if body["event"] == scenario.metric
        and occurred(body) - exposed[body["session_id"]] <= scenario.window
    }
    failed = {body["session_id"] for body in bodies if body["event"] == "error"}
    arms = {"control": scenario.control, "treatment": scenario.treatment}
    return {
        arm: (
            sum(served == of for served in commit.values()),
            sum(commit[session] == of for session in converted),
            sum(commit[session] == of for session in failed),
        )
        for arm, of in arms.items()
    }


@examples(gate=5, deep=150)
@given(
    seed=st.integers(0, 2**32),
    duplicated=st.floats(0, 1),
    disordered=st.floats(0, 1),
    late=st.floats(0, 1),
)
def test_the_truth_is_what_the_events_hold_however_they_are_delivered(
    seed, duplicated, disordered, late
) -> None:
    scenario = replace(
        EVERYTHING,
        end=START + timedelta(hours=1),
        duplicated=duplicated,
        disordered=disordered,
        late=late,
    )
    run = drawn(scenario, seed)
    truth = {arm: (each.units, each.conversions, each.errors) for arm, each in run.truth().items()}
    assert counted(list(run.deliveries()), scenario) == truth


def test_conversions_after_the_window_are_sent_and_not_in_the_truth() -> None:
    run = drawn(replace(HALF_DAY, window=timedelta(minutes=1)))
    sent = sum(body["event"] == "activation" for body in events(run))
    assert 0 < sum(each.conversions for each in run.truth().values()) < sent / 4


@pytest.mark.parametrize(
    "members",
    [
        {"allocation": 1.5},
        {"late": -0.1},
        {"baseline": 0.0},
        {"relative_lift": 9.5},
        {"end": START},
        {"ramp": ((START + timedelta(hours=2), 0.5), (START + timedelta(hours=1), 0.1))},
        {"ramp": ((START, 2.0),)},
        {"routes": ()},
        {"pages": 0.5},
        {"sessions_per_day": 0},
    ],
    ids=str,
)
def test_a_scenario_that_cannot_be_drawn_is_refused(members) -> None:
    with pytest.raises(ValueError, match="must"):
        replace(HALF_DAY, **members)
