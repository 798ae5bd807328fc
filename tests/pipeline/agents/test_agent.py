"""The agent of `examples/agent`, against a real service whose clock a simulated product moves."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from cli.repository.private_service import PrivateService, private_service
from storage.tenants.keys import KeyKind
from storage.tenants.settings import apply_settings
from tests.pipeline.agents.example import loaded_agent

pytestmark = pytest.mark.process

BASE = "0" * 40
METRIC, RATE = "order_placed", 0.3
MINUTES, SESSIONS_A_MINUTE = 5, 40
# What a change of each kind multiplies the rate by.
KINDS = {"nagging": 0.5, "wording": 1.0, "speed": 1.6}


@dataclass
class Product:
    """A product with users: what the agent's changes do to them, and the time that passes."""

    service: PrivateService
    now: datetime
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    factors: dict[str, float] = field(default_factory=lambda: {BASE: 1.0})
    base: str = BASE
    canary: tuple[str, float] | None = None
    asked: int = 0

    def make(self, kind: str) -> str:
        commit = f"{len(self.factors):040x}"
        self.factors[commit] = self.factors[self.base] * KINDS[kind]
        return commit

    def serve(self, commit: str, share: float) -> None:
        if share == 1:
            self.base = commit
        self.canary = (commit, share) if 0 < share < 1 else None

    def pass_time(self, seconds: float) -> None:
        """Lets users come, until a next look can have been taken."""
        self.asked += 1
        for _ in range(max(1, round(seconds / 60 / MINUTES))):
            self._live()

    def seconds(self) -> float:
        return self.now.timestamp()

    def _live(self) -> None:
        for _ in range(MINUTES):
            events = self._minute()
            self.now += timedelta(minutes=1)
            self.service.clock.move(self.now)
            self.service.post_events(events)
        self.service.look()

    def _minute(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        for number in range(SESSIONS_A_MINUTE):
            at = (self.now + timedelta(seconds=60 * number / SESSIONS_A_MINUTE)).isoformat()
            chosen = self.canary is not None and self.generator.random() < self.canary[1]
            commit = self.canary[0] if chosen and self.canary is not None else self.base
            event = {"session_id": self.generator.bytes(8).hex(), "commit": commit}
            events.append({**event, "event": "page_view", "occurred_at": at})
            if self.generator.random() < RATE * self.factors[commit]:
                events.append({**event, "event": METRIC, "occurred_at": at})
        return events


@pytest.fixture
def product() -> Iterator[Product]:
    begin = datetime.now(UTC).replace(second=0, microsecond=0, minute=0) - timedelta(days=3)
    with private_service(begin) as service:
        before = begin - timedelta(hours=1)
        service.deploy({"commit": {"sha": BASE}, "deployed_at": before.isoformat()})
        # A keep then waits for none of them.
        with service.engine.begin() as connection:
            apply_settings(connection, service.project.project_id, {"guardrails": []})
        yield Product(service=service, now=begin)


@pytest.mark.nightly
def test_an_agent_learns_which_kind_of_change_pays_and_users_get_it(product: Product) -> None:
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
    for _ in range(2):
        product.pass_time(MINUTES * 60)
        agent.learn()
    best = max(agent.beliefs, key=lambda kind: agent.beliefs[kind].mean)
    assert best == "speed"
    # What is kept is what users have, and what the next change is built on.
    assert agent.base == product.base
    assert product.factors[product.base] >= KINDS["speed"]
