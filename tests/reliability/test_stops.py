"""Stops in order: what was asked before the signal is answered, and the process is gone in time."""

import time

import pytest

from storage.tenants.keys import KeyKind
from tests.clients.audit import require_all_kept
from tests.clients.crowd import crowd
from tests.clients.load import load
from tests.clients.shop import Shop
from tests.processes.api_process import ApiProcess
from tests.repetition import times

pytestmark = pytest.mark.process


@pytest.mark.parametrize("workers", [2], ids=["two workers"])
@times(gate=3, deep=20)
def test_a_stop_under_load_loses_nothing_and_answers_all_that_was_asked(
    shop: Shop, api: ApiProcess, times: int
) -> None:
    took: list[float] = []
    with load(api.url, shop.keys) as under_load:
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


@pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "two workers"])
@times(gate=2, deep=10)
def test_requests_that_were_written_before_the_signal_are_answered(
    shop: Shop, api: ApiProcess, times: int
) -> None:
    for turn in range(times):
        if turn:
            api.start()
        with crowd(api.port, shop.keys[KeyKind.PUBLIC]) as browsers:
            # Connections that were idle for a moment, and connections as new as the request.
            if turn % 2:
                assert {answer.status for answer in browsers.get("/healthz")} == {200}
            told = [
                {"event": "a", "session_id": f"{turn} {number}"}
                for number in range(len(browsers.connections))
            ]
            # The worst moment: nothing of it has been read when the signal comes.
            with api.held():
                browsers.ask_all("/v1/events", told)
                asked = api.ask_to_stop()
            answers = browsers.answers()
        api.stopped(asked)
        assert {answer.status for answer in answers} <= {202, 503}
