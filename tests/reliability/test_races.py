"""Races: fifty clients say the same at once, to two workers, and one of them is first."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select

from storage.schema.tables import deploys, experiments, revenue_events
from storage.tenants.keys import KeyKind
from tests.clients.crowd import Crowd, crowd
from tests.clients.delivery import TREATMENT
from tests.clients.shop import Shop
from tests.processes.api_process import ApiProcess
from tests.repetition import times

pytestmark = [
    pytest.mark.process,
    # A race inside one process is no race of transactions alone: two have pools of their own.
    pytest.mark.parametrize("workers", [2], ids=["two workers"]),
]

HALF = 25


def invoice(key: str, amount: int) -> dict[str, Any]:
    return {
        "event": "expansion",
        "occurred_at": "2026-01-31T12:00:00Z",
        "user_ref": "workspace-17",
        "idempotency_key": key,
        "amount": {"value": amount, "currency": "USD"},
    }


@pytest.fixture
def writers(api: ApiProcess, shop: Shop) -> Iterator[Crowd]:
    with crowd(api.port, shop.keys[KeyKind.WRITE]) as writers:
        yield writers


@pytest.fixture
def readers(api: ApiProcess, shop: Shop) -> Iterator[Crowd]:
    with crowd(api.port, shop.keys[KeyKind.PROJECT]) as readers:
        yield readers


def rows_of(shop: Shop, column: Any) -> Counter[Any]:
    """How many rows each value of a column has."""
    with shop.engine.begin() as connection:
        return Counter(connection.execute(select(column)).scalars())


@times(gate=10, deep=1_000)
def test_one_key_from_fifty_clients_is_accepted_once(
    shop: Shop, writers: Crowd, times: int
) -> None:
    for turn in range(times):
        answers = writers.post("/v1/revenue/events", [invoice(f"k{turn}", 100)] * 2 * HALF)
        assert {answer.status for answer in answers} == {200}
        told = Counter(answer.document["results"][0]["status"] for answer in answers)
        assert told == {"accepted": 1, "duplicate": 2 * HALF - 1}
    assert rows_of(shop, revenue_events.c.idempotency_key) == {f"k{i}": 1 for i in range(times)}


@times(gate=8, deep=1_000)
def test_of_two_payloads_under_one_key_one_is_refused_to_all(
    shop: Shop, writers: Crowd, times: int
) -> None:
    amounts: dict[str, int] = {}
    for turn in range(times):
        bodies = [invoice(f"k{turn}", 100), invoice(f"k{turn}", 200)] * HALF
        answers = writers.post("/v1/revenue/events", bodies)
        told = [
            answer.document["results"][0]["status"] if answer.status == 200 else answer.status
            for answer in answers
        ]
        assert Counter(told) == {"accepted": 1, "duplicate": HALF - 1, 409: HALF}
        first = told.index("accepted")
        assert {told[i] for i in range(first % 2, 2 * HALF, 2)} == {"accepted", "duplicate"}
        amounts[f"k{turn}"] = bodies[first]["amount"]["value"]
    with shop.engine.begin() as connection:
        rows = connection.execute(
            select(revenue_events.c.idempotency_key, revenue_events.c.amount_value)
        ).all()
    assert sorted(rows) == sorted(amounts.items())


@times(gate=8, deep=1_000)
def test_fifty_posts_of_one_deploy_are_one_deploy(shop: Shop, writers: Crowd, times: int) -> None:
    for turn in range(times):
        body = {
            "commit": {"sha": f"{turn:07x}"},
            "environment": f"e{turn}",
            "deployed_at": "2026-01-31T12:00:00Z",
        }
        answers = writers.post("/v1/deploys", [body] * 2 * HALF)
        assert Counter(answer.status for answer in answers) == {201: 1, 200: 2 * HALF - 1}
        assert len({answer.document["deploy"]["deploy_id"] for answer in answers}) == 1
    recorded = rows_of(shop, deploys.c.environment)
    assert {f"e{turn}": 1 for turn in range(times)}.items() <= recorded.items()


@pytest.mark.parametrize("deployed", [True, False], ids=["deployed", "still to be deployed"])
@times(gate=6, deep=500)
def test_fifty_registrations_of_one_change_are_one_experiment(
    shop: Shop, readers: Crowd, times: int, deployed: bool
) -> None:
    commit = TREATMENT if deployed else "feedc0ffee"
    for turn in range(times):
        body = {"treatment_commit": commit, "target_metric": f"m{turn}"}
        answers = readers.post("/v1/reward/register", [body] * 2 * HALF)
        assert {answer.status for answer in answers} == {201}
        assert len({answer.document["experiment_id"] for answer in answers}) == 1
    registered = rows_of(shop, experiments.c.target_metric)
    assert {f"m{turn}": 1 for turn in range(times)}.items() <= registered.items()
