"""Recent readings: what a process read of the store lately, once for all who asked meanwhile."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

KeyT = TypeVar("KeyT")
ReadT = TypeVar("ReadT")


class Recent(Generic[KeyT, ReadT]):
    """Readings by their keys, each kept for some time.

    Whoever asks while a key is read waits for the same reading. A reading that failed, or that is
    None, is not kept.
    """

    def __init__(self, seconds: float, *, capacity: int = 1000) -> None:
        self._seconds, self._capacity = seconds, capacity
        self._kept: dict[KeyT, tuple[float, asyncio.Task[ReadT]]] = {}

    def __contains__(self, key: KeyT) -> bool:
        return key in self._kept

    async def read(
        self, key: KeyT, reading: Callable[[], Coroutine[Any, Any, ReadT]], *, fresh: bool = False
    ) -> ReadT:
        """Returns the reading of a key, by a function where it was not read lately.

        Args:
            fresh: Whether the reading must begin after this call. Readings of a key that were
                asked for so follow each other, and callers that wait meanwhile share the next.
        """
        asked, known = time.monotonic(), self._kept.get(key)
        if fresh and known is not None:
            await asyncio.wait([known[1]])
            known = self._kept.get(key)
        now = time.monotonic()
        if known is None or known[0] <= (asked + self._seconds if fresh else now):
            if len(self._kept) >= self._capacity:
                self._kept.clear()
            task = asyncio.create_task(reading())
            task.add_done_callback(partial(self._settle, key))
            known = self._kept[key] = now + self._seconds, task
        # A client that disconnects must not cancel the computation for the others.
        return known[1].result() if known[1].done() else await asyncio.shield(known[1])

    def _settle(self, key: KeyT, task: asyncio.Task[ReadT]) -> None:
        failed = task.cancelled() or task.exception() is not None or task.result() is None
        if failed and self._kept.get(key, (0.0, None))[1] is task:
            del self._kept[key]

    async def aclose(self) -> None:
        """Waits for the readings under way: they use the store."""
        await asyncio.gather(*(task for _, task in self._kept.values()), return_exceptions=True)
