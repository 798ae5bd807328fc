"""A shop: a project that hears of its verdicts, and the ticks that tell it."""

from dataclasses import dataclass
from typing import Any

import dagster as dg
from sqlalchemy import text

from orchestration.dagster.resources import Store
from orchestration.dagster.upkeep.webhooks import webhooks
from orchestration.definitions import resources
from storage.tenants.attestations import WebhookSecrets
from tests.stores.publication import publish

OF_THE_TESTS = "a secret of the tests, long enough"
LIFT = {"lift": 0.1, "confidence": 0.999, "ci": (0.05, 0.15), "cadence": "fast"}
NEWS: dict[str, dict[str, Any]] = {
    "decided": {"verdict": "keep", "abstain_reason": None, "decided": True, **LIFT},
    "closed": {"verdict": "abstain", "abstain_reason": "power", "decided": True},
    "breached": {
        "verdict": "abstain",
        "abstain_reason": "power",
        "decided": False,
        "guardrail_breaches": ["error"],
    },
    "set_up_fault": {"verdict": "abstain", "abstain_reason": "interacting", "decided": False},
}


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A project that hears of its verdicts, and the ticks that tell it."""

    service: Any
    instance: dg.DagsterInstance

    def register(self, metric: str = "order") -> str:
        answer = self.service.post("/v1/reward/register", {"target_metric": metric})
        return answer.json()["experiment_id"]

    def publish(self, experiment_id: str, kind: str) -> None:
        self.service.in_store(lambda connection: self.publish_in(connection, experiment_id, kind))

    def publish_in(self, connection: Any, experiment_id: str, kind: str) -> None:
        document = {"sentence": f"It is {kind}: 5 < 6 & <!channel>."}
        publish(connection, experiment_id, NEWS[kind], document)

    def tick(self) -> str:
        resource = Store(database_url=self.service.store.url)
        with dg.build_sensor_context(
            instance=self.instance, resources=resources(resource)
        ) as context:
            said = webhooks.evaluate_tick(context).skip_message
        assert said is not None
        return said

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.service.in_store(lambda c: [tuple(row) for row in c.execute(text(query))])

    def change(self, statement: str) -> None:
        self.service.in_store(lambda c: c.execute(text(statement)))

    def let_time_pass(self) -> None:
        """Whatever waits is due."""
        self.change("UPDATE deliveries SET next_attempt_at = clock_timestamp()")


def secret_of(shop: Shop) -> str:
    return WebhookSecrets(OF_THE_TESTS.encode()).of(shop.service.project_id)
