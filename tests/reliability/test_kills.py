"""Kills: whatever ends the API's processes, what was acknowledged is there, and counts once."""

import httpx2
import pytest

from storage.tenants.keys import KeyKind
from tests.clients.audit import audit, require_all_kept
from tests.clients.delivery import SESSIONS, VIEWS, amount_of, converts
from tests.clients.load import load
from tests.processes.power_cut import cut_power
from tests.repetition import times

pytestmark = pytest.mark.process


@times(gate=4, deep=120)
def test_a_kill_of_the_service_loses_nothing_that_was_acknowledged(
    postgres, shop, api, times
) -> None:
    with load(api.url, shop.keys) as under_load:
        for turn in range(times):
            under_load.run_on()
            api.kill()
            # Now and then the whole machine goes dark.
            if turn % 4 == 3:
                cut_power(postgres, turn=turn)
                postgres.start()
            api.start()
        under_load.run_on()
        under_load.finish()
    require_all_kept(shop, under_load, times=times)


@pytest.mark.parametrize("workers", [2], ids=["two workers"])
@times(gate=2, deep=40)
def test_a_kill_of_one_worker_loses_nothing_that_was_acknowledged(shop, api, url, times) -> None:
    with load(url, shop.keys) as under_load:
        for turn in range(times):
            under_load.run_on()
            api.kill_worker(turn)
        under_load.run_on()
        under_load.finish()
    require_all_kept(shop, under_load, times=times)


def test_what_is_sent_again_counts_once(shop, api) -> None:
    with load(api.url, shop.keys, kinds=(VIEWS, SESSIONS)) as under_load:
        under_load.run_on()
        under_load.finish()
    # As clients do whose answer was lost with the process that had stored everything.
    headers = {"X-Service-Project-Key": shop.keys[KeyKind.PUBLIC]}
    with httpx2.Client(base_url=api.url, headers=headers) as client:
        for delivery in under_load.deliveries:
            assert client.post(delivery.kind.path, json=delivery.body).status_code == 202
            delivery.attempts += 1
    result = audit(shop.engine, under_load)
    assert result.copies == result.rows
    assert result.excess == 0
    sessions = [delivery for delivery in under_load.deliveries if delivery.kind is SESSIONS]
    orders = [name for delivery in sessions for name in delivery.names if converts(name)]
    counted = shop.counted(shop.orders)
    assert counted.units == sum(len(delivery.names) for delivery in under_load.deliveries)
    assert counted.converted == len(orders)
    assert shop.counted(shop.spending).total == sum(map(amount_of, orders))
