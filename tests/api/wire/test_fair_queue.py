"""Turns: of a project only a few requests go on at once where another sends, and all where none."""

import asyncio
from collections.abc import Awaitable, Callable

from api.wire.fair_queue import FairQueue, Reservation

LOUD, QUIET = 1, 2


def reserved(queue: FairQueue, project_id: int, size: int = 300) -> Reservation:
    reservation = Reservation(queue, project_id)
    reservation.hold(size)
    return reservation


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def played(story: Callable[[FairQueue], Awaitable[None]]) -> None:
    async def play() -> None:
        await story(FairQueue())

    asyncio.run(play())


def test_a_flood_waits_for_its_own_and_a_neighbour_for_none_of_it() -> None:
    async def story(queue: FairQueue) -> None:
        flood = [reserved(queue, LOUD) for _ in range(20)]
        turns = [asyncio.create_task(each.turn()) for each in flood]
        await settled()
        assert [turn.done() for turn in turns] == [True] * 8 + [False] * 12
        await asyncio.wait_for(reserved(queue, QUIET).turn(), 1)
        # Each that ends lets the next go on, in the order in which they came.
        for ended in range(12):
            flood[ended].release()
            await settled()
            assert [turn.done() for turn in turns] == [True] * (9 + ended) + [False] * (11 - ended)

    played(story)


def test_one_large_request_goes_on_however_large() -> None:
    async def story(queue: FairQueue) -> None:
        large = [reserved(queue, LOUD, 2**20) for _ in range(2)]
        turns = [asyncio.create_task(each.turn()) for each in large]
        await settled()
        assert [turn.done() for turn in turns] == [True, False]
        large[0].release()
        await asyncio.wait_for(turns[1], 1)

    played(story)


def test_a_request_that_gave_up_holds_nobody_up() -> None:
    async def story(queue: FairQueue) -> None:
        requests = [reserved(queue, LOUD, 2**20) for _ in range(3)]
        turns = [asyncio.create_task(each.turn()) for each in requests]
        await settled()
        turns[1].cancel()
        await settled()
        requests[1].release()
        requests[0].release()
        await asyncio.wait_for(turns[2], 1)

    played(story)


def test_whoever_sends_alone_waits_for_nobody(monkeypatch) -> None:
    async def story(queue: FairQueue) -> None:
        loop = asyncio.get_running_loop()
        await reserved(queue, LOUD).turn()
        now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: now + 2)
        for _ in range(100):
            await asyncio.wait_for(reserved(queue, LOUD).turn(), 1)

    played(story)
