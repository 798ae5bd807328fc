"""`/metrics` beside its own counters: what the store tells of the whole service."""

import asyncio
import re
from collections import Counter

import httpx2
import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from api.app import create_app
from api.runtime.gauges import StoreGauges
from api.runtime.settings import ApiSettings
from api.runtime.store import Store
from storage.postgres.pool import open_async_engine
from storage.upkeep.gauges import read_gauges
from tests.processes.api_process import ApiProcess

UP = re.compile(rb"^deploy_reward_store_up (\S+)$", re.MULTILINE)
AGE = b"\ndeploy_reward_last_event_age_seconds "


def is_up(polled: bytes) -> bool:
    (value,) = UP.findall(polled)
    return float(value) == 1


def test_a_store_that_is_away_takes_no_counter_with_it() -> None:
    settings = ApiSettings(
        database_url="postgresql://nobody@/none?host=/nonexistent", secret=b"secret"
    )
    with TestClient(create_app(settings)) as client:
        assert client.get("/readyz").status_code == 503
        answer = client.get("/metrics")
    assert answer.status_code == 200
    assert not is_up(answer.content)
    assert b'route="/readyz",status="503"} 1.0' in answer.content
    assert b"deploy_reward_open_experiments" not in answer.content


@pytest.mark.parametrize(("fresh_seconds", "told_anew"), [(3600, False), (0, True)])
def test_the_store_is_asked_again_when_its_answer_is_old(
    service, runtime_event, fresh_seconds, told_anew
) -> None:
    async def polled() -> list[bytes]:
        engine = open_async_engine(service.store.url)
        gauges = StoreGauges(
            Store(engine), read_gauges, fresh_seconds=fresh_seconds, patience_seconds=60
        )
        try:
            before = await gauges.exposition()
            await asyncio.to_thread(service.post, "/v1/events", runtime_event)
            return [before, await gauges.exposition()]
        finally:
            await engine.dispose()

    before, after = asyncio.run(polled())
    assert AGE not in before
    assert (AGE in after) == told_anew


def test_a_store_that_hangs_is_not_waited_for(service) -> None:
    async def polled() -> list[bool]:
        # A connection: that the first reading gives it back is seen from the second.
        engine = open_async_engine(service.store.url, pool_size=1)
        gauges = StoreGauges(Store(engine), read_gauges, fresh_seconds=0, patience_seconds=0.2)
        patient = StoreGauges(Store(engine), read_gauges, patience_seconds=60)
        try:
            with service.store.engine.begin() as connection:
                connection.execute(text("LOCK TABLE verdicts"))
                hanging = await gauges.exposition()
            return [is_up(hanging), is_up(await patient.exposition())]
        finally:
            await engine.dispose()

    assert asyncio.run(polled()) == [False, True]


@pytest.mark.process
@pytest.mark.nightly
def test_several_workers_tell_each_gauge_once(safe_postgres, tmp_path) -> None:
    with ApiProcess(log=tmp_path / "api.log", database_url=safe_postgres.url, workers=2) as api:
        api.start()
        for _ in range(4):
            answer = httpx2.get(f"{api.url}/metrics").text
            names = Counter(re.findall(r"^(deploy_reward_\w+(?:{[^}]*})?) ", answer, re.MULTILINE))
            assert names["deploy_reward_store_up"] == 1
            assert set(names.values()) == {1}
