"""Handouts of a process, each read from the store at most twice a second."""

from typing import Self

from api.runtime.recent import Recent
from api.runtime.store import Store
from storage.releases.handout import Handout, read_handout

# A withdrawn canary gets no further unit a second later.
_REMEMBERED_SECONDS = 0.5


class Handouts:
    """Reads handouts, each environment's once for all requests of half a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent = Recent[tuple[int, str], Handout](_REMEMBERED_SECONDS)

    async def of(self, project_id: int, environment: str) -> Handout:
        """Returns the handout of an environment.

        Raises:
            StoreUnavailable: The store cannot be reached.
        """
        where = (project_id, environment)
        return await self._recent.read(
            where, lambda: self._store.run(lambda connection: read_handout(connection, *where))
        )

    async def __aenter__(self) -> Self:
        """Reads nothing yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Waits for the reads under way."""
        await self._recent.close()
