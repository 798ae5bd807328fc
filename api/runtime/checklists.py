"""The checklists of a process: computed on request, and kept for a minute."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Connection
from starlette.requests import Request

from api.runtime.recent import Recent
from api.runtime.store import Store
from domain.checklist.line import ChecklistLine

# Computes the lines of a project.
ReadChecklist = Callable[[Connection, int], Sequence[ChecklistLine]]


@dataclass(frozen=True, kw_only=True)
class Checklist:
    """The lines of a project, and when they were computed."""

    lines: Sequence[ChecklistLine]
    computed_at: datetime

    @property
    def age(self) -> int:
        """How many seconds ago they were computed."""
        return max(0, int((datetime.now(UTC) - self.computed_at).total_seconds()))


class Checklists:
    """The checklist of each project; who asks while it is computed waits for the same checklist."""

    def __init__(self, store: Store, read: ReadChecklist, *, kept_seconds: float) -> None:
        self._store, self._read = store, read
        self._recent = Recent[int, Checklist](kept_seconds)

    async def of(self, project_id: int, *, fresh: bool = False) -> Checklist:
        """Returns a project's checklist, of this minute, or of this moment."""
        computed = partial(self._computed, project_id)
        return await self._recent.read(project_id, computed, fresh=fresh)

    async def _computed(self, project_id: int) -> Checklist:
        lines = await self._store.run(lambda connection: self._read(connection, project_id))
        return Checklist(lines=lines, computed_at=datetime.now(UTC))


def checklists(request: Request) -> Checklists:
    """Returns the checklists of the process, from a request to it."""
    shared: Checklists = request.scope["state"]["checklists"]
    return shared
