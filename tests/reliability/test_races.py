"""Races: fifty clients say the same at once, to two workers, and a single client is first."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select

from storage.schema.tables import deploys, experiments, revenue_events
from storage.tenants.keys import KeyKind
from tests.clients.crowd import Crowd, crowd
from tests.clients.delivery import TREATMENT
from tests.clients.shop import Shop, open_shop
from tests.processes.api_process import ApiProcess
from tests.processes.server_folder import migrated_server, server_folder
from tests.repetition import also_nightly, times

pytestmark = pytest.mark.process

HALF = 25


def invoice(key: str, amount: int) -> dict[str, Any]:
    return {
        "event": "expansion",
        "occurred_at": "2026-01-31T12:00:00Z",
        "user_ref": "workspace-17",
        "idempotency_key": key,
        "amount": {"value": amount, "currency": "USD"},
    }


@dataclass(frozen=True, kw_only=True)
class Raced:
    shop: Shop
    port: int


@pytest.fixture(scope="module")
def raced() -> Iterator[Raced]:
    """One shop for all the races, in whose names it stands which race, and how long, it is."""
    with server_folder() as folder, migrated_server(folder) as postgres, ExitStack() as stack:
        # Nobody of the crowd is to be hung up on while the others are answered.
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("SERVICE_IDLE_SECONDS", "600")
        shop = open_shop(postgres.url)
        stack.callback(shop.engine.dispose)
        # A race inside a single process is no race of transactions alone: two have pools of their
        # own.
        api = ApiProcess(log=folder / "api.log", database_url=shop.url, workers=2)
        stack.enter_context(api).start()
        yield Raced(shop=shop, port=api.port)


@pytest.fixture
def shop(raced) -> Shop:
    return raced.shop


@pytest.fixture
def writers(raced) -> Iterator[Crowd]:
    with crowd(raced.port, raced.shop.keys[KeyKind.WRITE]) as writers:
        yield writers


@pytest.fixture
def readers(raced) -> Iterator[Crowd]:
    with crowd(raced.port, raced.shop.keys[KeyKind.PROJECT]) as readers:
        yield readers


def rows_of(shop: Shop, column: Any, *, prefix: str) -> Counter[Any]:
    """How many rows each value of a column has that begins so."""
    with shop.engine.begin() as connection:
        named = select(column).where(column.startswith(prefix))
        return Counter(connection.execute(named).scalars())


@times(gate=10, deep=1_000)
def test_one_key_from_fifty_clients_is_accepted_once(shop, writers, times) -> None:
    for turn in range(times):
        answers = writers.post("/v1/revenue/events", [invoice(f"k{times}-{turn}", 100)] * 2 * HALF)
        assert {answer.status for answer in answers} == {200}
        result = Counter(answer.document["results"][0]["status"] for answer in answers)
        assert result == {"accepted": 1, "duplicate": 2 * HALF - 1}
    stored = rows_of(shop, revenue_events.c.idempotency_key, prefix=f"k{times}-")
    assert stored == {f"k{times}-{turn}": 1 for turn in range(times)}


@times(gate=8, deep=1_000)
def test_of_two_payloads_under_one_key_one_is_refused_to_all(shop, writers, times) -> None:
    amounts: dict[str, int] = {}
    for turn in range(times):
        bodies = [invoice(f"two{times}-{turn}", 100), invoice(f"two{times}-{turn}", 200)] * HALF
        answers = writers.post("/v1/revenue/events", bodies)
        result = [
            answer.document["results"][0]["status"] if answer.status == 200 else answer.status
            for answer in answers
        ]
        assert Counter(result) == {"accepted": 1, "duplicate": HALF - 1, 409: HALF}
        first = result.index("accepted")
        assert {result[i] for i in range(first % 2, 2 * HALF, 2)} == {"accepted", "duplicate"}
        amounts[f"two{times}-{turn}"] = bodies[first]["amount"]["value"]
    with shop.engine.begin() as connection:
        rows = connection.execute(
            select(revenue_events.c.idempotency_key, revenue_events.c.amount_value).where(
                revenue_events.c.idempotency_key.startswith(f"two{times}-")
            )
        ).all()
    assert sorted(rows) == sorted(amounts.items())


@times(gate=8, deep=1_000)
def test_fifty_posts_of_one_deploy_are_one_deploy(shop, writers, times) -> None:
    for turn in range(times):
        body = {
            "commit": {"sha": f"a{turn:06x}"},
            "environment": f"e{times}-{turn}",
            "deployed_at": "2026-01-31T12:00:00Z",
        }
        answers = writers.post("/v1/deploys", [body] * 2 * HALF)
        assert Counter(answer.status for answer in answers) == {201: 1, 200: 2 * HALF - 1}
        assert len({answer.document["deploy"]["deploy_id"] for answer in answers}) == 1
    recorded = rows_of(shop, deploys.c.environment, prefix=f"e{times}-")
    assert recorded == {f"e{times}-{turn}": 1 for turn in range(times)}


@pytest.mark.parametrize(
    "deployed", also_nightly([True], [False]), ids=["deployed", "still to be deployed"]
)
@times(gate=6, deep=500)
def test_fifty_registrations_of_one_change_are_one_experiment(
    shop, readers, times, deployed
) -> None:
    commit = TREATMENT if deployed else "feedc0ffee"
    for turn in range(times):
        body = {"treatment_commit": commit, "target_metric": f"{commit}_{times}_{turn}"}
        answers = readers.post("/v1/reward/register", [body] * 2 * HALF)
        assert {answer.status for answer in answers} == {201}
        assert len({answer.document["experiment_id"] for answer in answers}) == 1
    registered = rows_of(shop, experiments.c.target_metric, prefix=f"{commit}_{times}_")
    assert registered == {f"{commit}_{times}_{turn}": 1 for turn in range(times)}
