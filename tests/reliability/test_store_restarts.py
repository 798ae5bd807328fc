"""Restarts of PostgreSQL: the service says 503 while it is away, and loses nothing."""

import time

import pytest

from tests.clients.audit import require_all_kept
from tests.clients.load import load
from tests.processes.api_process import eventually
from tests.processes.power_cut import cut_power
from tests.repetition import times

pytestmark = pytest.mark.process


@times(gate=3, deep=50)
def test_a_store_that_dies_and_comes_back_loses_nothing_that_was_acknowledged(
    postgres, shop, api, times
) -> None:
    waits: list[float] = []
    with load(api.url, shop.keys) as under_load:
        for turn in range(times):
            under_load.run_on()
            cut_power(postgres, turn=turn)
            told_so = under_load.statuses[503]
            eventually(lambda before=told_so: under_load.statuses[503] > before)
            postgres.start()
            waits.append(under_load.seconds_to_serve(since=time.monotonic()))
        under_load.finish()
    print(f"answered again at most {max(waits):.2f} s after the store")  # noqa: T201
    require_all_kept(shop, under_load, times=times, cuts=0)
