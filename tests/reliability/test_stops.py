"""Stops in order: what was asked before the signal is answered, and the process is gone in time."""

import time

import pytest

from tests.clients.audit import require_all_kept
from tests.clients.load import load
from tests.repetition import times

pytestmark = pytest.mark.process


@pytest.mark.parametrize("workers", [2], ids=["two workers"])
@times(gate=2, deep=20)
def test_a_stop_under_load_loses_nothing_and_answers_all_that_was_asked(
    shop, api, url, times
) -> None:
    took: list[float] = []
    with load(url, shop.keys) as under_load:
        for _ in range(times):
            under_load.run_on()
            began = time.monotonic()
            under_load.run_on(each=1)
            asked = api.ask_to_stop()
            took.append(api.stopped(asked))
            assert under_load.unanswered(since=began, until=asked) == []
            api.start()
        under_load.finish()
    print(f"stopped within {max(took):.2f} s")  # noqa: T201 - as `pytest -rP` shows
    require_all_kept(shop, under_load, times=times)
