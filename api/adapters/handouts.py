"""Handouts of a process, each read from the store at most twice a second."""

import asyncio
import time
from dataclasses import dataclass
from typing import Self

from api.runtime.store import Store
from storage.releases.handout import Handout, read_handout

# A withdrawn canary gets no further unit a second later.
_REMEMBERED_SECONDS = 0.5
_MOST_REMEMBERED = 1_000


@dataclass(frozen=True, kw_only=True)
class _Remembered:
    until: float
    reading: asyncio.Task[Handout]


class Handouts:
    """Reads handouts, each environment's once for all requests of half a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._remembered: dict[tuple[int, str], _Remembered] = {}

    async def of(self, project_id: int, environment: str) -> Handout:
        """Returns the handout of an environment.

        Raises:
            StoreUnavailable: The store cannot be reached.
        """
        where, now = (project_id, environment), time.monotonic()
        known = self._remembered.get(where)
        if known is None or known.until <= now:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            reading = asyncio.create_task(
                self._store.run(lambda connection: read_handout(connection, *where))
            )
            reading.add_done_callback(lambda task: self._settle(where, task))
            known = _Remembered(until=now + _REMEMBERED_SECONDS, reading=reading)
            self._remembered[where] = known
        return await asyncio.shield(known.reading)

    def _settle(self, where: tuple[int, str], task: asyncio.Task[Handout]) -> None:
        # A store that is back is asked again at once.
        known = self._remembered.get(where)
        failed = task.cancelled() or task.exception() is not None
        if failed and known is not None and known.reading is task:
            del self._remembered[where]

    async def __aenter__(self) -> Self:
        """Reads nothing yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Waits for the reads under way: they use the store."""
        readings = [known.reading for known in self._remembered.values()]
        await asyncio.gather(*readings, return_exceptions=True)
