"""Turns: policies are frozen in turns, so that no project's past holds up another project's."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

from domain.registration import Registration
from orchestration.pipeline.steps import freeze_bound
from orchestration.pipeline.whole_days import LakeDays
from storage.experiments.deploys import DeployRequest, record_deploy
from storage.experiments.experiments import register
from storage.experiments.freezing import take_turn
from storage.schema.clock import store_time
from storage.tenants.projects import create_project
from storage.tenants.setting_changes import apply_settings
from storage.upkeep.gauges import read_gauges
from tests.world import A, K, World

HEAVY = 50
MEANS = {f"m{number}": {"kind": "mean"} for number in range(3)}
BEGAN = datetime.now(UTC) - timedelta(days=1)


def bound(connection: Connection, name: str, *metrics: str) -> list[str]:
    """Experiments of a canary of a project of this name, which wait for their policies."""
    project_id = create_project(connection, name).project_id
    apply_settings(connection, project_id, {"metrics": MEANS})
    request = DeployRequest(
        environment="production",
        commit={"sha": K},
        deployed_at=BEGAN,
        graph=None,
        diff=None,
        allocation=0.1,
        idempotency_key=None,
    )
    record_deploy(connection, project_id, request)
    asked = [Registration(treatment_commit=K, target_metric=metric) for metric in metrics]
    return [register(connection, project_id, each).experiment_id for each in asked]


SERVED = text("SELECT experiment_id FROM experiments WHERE answered_at IS NOT NULL")


def test_a_light_project_waits_for_a_single_turn_of_each_heavy_project(store) -> None:
    with store.engine.begin() as connection:
        heavy = [bound(connection, f"heavy {number}", *MEANS) for number in range(HEAVY)]
    with store.engine.begin() as connection:
        (light,) = bound(connection, "light", "order")
        as_of = store_time(connection)
        assert list(read_gauges(connection).freeze_wait_seconds) == [heavy[0][0]]
    served: set[str] = set()
    turns = 0
    while light not in served:
        # A run without time takes a turn at least.
        freeze_bound(store.engine.begin, LakeDays(), as_of=as_of, seconds=0.0)
        turns += 1
        with store.engine.connect() as connection:
            served = {*connection.execute(SERVED).scalars()}
    assert turns == HEAVY + 1
    assert served == {light, *(first for first, *_ in heavy)}


@pytest.fixture
def waiting(service) -> tuple[World, str]:
    """A canary's experiment that waits for its policy, of a mean and a guardrail of means."""
    service.settings(metrics=MEANS, guardrails=["m1"], unit="session")
    service.deploy(A, minutes=-60)
    service.deploy(K, 0.1, base=A)
    return service, service.register(treatment_commit=K, target_metric="m0")


def stored(world: World, experiment_id: str) -> Any:
    query = text("SELECT policy, answers FROM experiments WHERE experiment_id = :id")
    return world.in_store(lambda c: c.execute(query, {"id": experiment_id}).one())


def test_what_a_turn_has_read_is_kept_and_what_is_not_answered_twice_has_its_default(
    waiting,
) -> None:
    world, name = waiting
    assert not world.in_store(lambda c: take_turn(c, name, seconds=0.0)).is_done
    (first,) = stored(world, name).answers["answers"]
    with world.store.engine.begin() as connection:
        connection.execute(text("LOCK runtime_events, revenue_events IN ACCESS EXCLUSIVE MODE"))
        turn = world.in_store(lambda c: take_turn(c, name, patience=0.05))
        assert (turn.is_done, turn.is_unanswered) == (False, True)
        assert stored(world, name).policy is None
        while not turn.is_done:
            turn = world.in_store(lambda c: take_turn(c, name, patience=0.05))
    policy = stored(world, name).policy
    assert policy["frozen_from"][0] == first
    assert policy["unread"] == [each["question"] for each in policy["frozen_from"][1:]]
    assert {"cap of m0", "cap of m1"} <= {*policy["unread"]}
    assert world.get(f"/v1/reward/{name}/registration").json()["frozen_at"] is not None
