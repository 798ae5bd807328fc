"""The agent of `examples/agent`, against a real service whose clock a simulated product moves."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from benchmarks.calibration.reward.product import BASE, KINDS, METRIC, Product
from benchmarks.repository.private_service import private_service
from storage.tenants.keys import KeyKind
from storage.tenants.setting_changes import apply_settings
from tests.pipeline.agents.example import loaded_agent

pytestmark = pytest.mark.process


@pytest.fixture
def product() -> Iterator[Product]:
    begin = datetime.now(UTC).replace(second=0, microsecond=0, minute=0) - timedelta(days=3)
    with private_service(begin) as service:
        before = begin - timedelta(hours=1)
        service.deploy({"commit": {"sha": BASE}, "deployed_at": before.isoformat()})
        # A keep then waits for none of them.
        with service.engine.begin() as connection:
            settings = {"guardrails": [], "reward_days": 1}
            apply_settings(connection, service.project.project_id, settings)
        yield Product(service=service, now=begin)


@pytest.mark.nightly
def test_an_agent_learns_which_kind_of_change_pays_and_users_get_it(product) -> None:
    module = loaded_agent()
    module.PATIENCE_SECONDS = 60 * 60
    keys = product.service.project.keys
    agent = module.Agent(
        service=module.Service(
            url=str(product.service.client.base_url).rstrip("/"),
            write_key=keys[KeyKind.WRITE],
            project_key=keys[KeyKind.PROJECT],
        ),
        workshop=product,
        base=BASE,
        metric=METRIC,
        beliefs={kind: module.Belief(precision=0.1**-2) for kind in KINDS},
        chance=random.Random(2),
        sleep=product.pass_time,
        clock=product.seconds,
    )
    shipped: list[dict[str, Any]] = []
    while {line["kind"] for line in shipped} != KINDS.keys() or len(shipped) < 4:
        shipped.append(agent.ship())
        print(json.dumps(shipped[-1]))  # noqa: T201  # the transcript
        assert len(shipped) < 9
    answers = {(line["kind"], line["verdict"]) for line in shipped}
    assert ("speed", "keep") in answers
    assert ("nagging", "rollback") in answers
    assert not answers & {("speed", "rollback"), ("nagging", "keep"), ("wording", "rollback")}
    # A day after each start no further unit moves the effects of what has a verdict.
    product.service.clock.move(product.now + timedelta(days=1.5))
    product.service.look()
    agent.learn()
    best = max(agent.beliefs, key=lambda kind: agent.beliefs[kind].mean)
    assert best == "speed"
    # What is kept is what users have, and what the next change is built on.
    assert agent.base == product.base
    assert product.factors[product.base] >= KINDS["speed"]
