"""The fair queue: bounds the bytes that wait in a process, fairly among projects."""

import asyncio
from collections import deque

from api.wire.problem import Problem

# Bytes of bodies, their inflated forms and the values built of them.
_CAPACITY_BYTES = 128 * 2**20
# A project has so many bytes carried out at once, or a single request, where others send too.
_SHARE_BYTES = 160 * 1024
# A small request is as much work as so many bytes of a large request.
_LEAST_BYTES = 20 * 1024
# A project that was the only sender for so long waits for no other.
_ALONE_SECONDS = 1.0


class _Project:
    """A project's part in the queue: its bytes, its requests under way, and those that wait."""

    __slots__ = ("held", "project_id", "reservations", "served", "waiting")

    def __init__(self, project_id: int | None) -> None:
        self.project_id = project_id
        self.reservations = 0
        self.held = 0
        self.served = 0
        self.waiting: deque[Reservation] = deque()


class FairQueue:
    """Requests with bodies: the bytes that they hold, and the few of a project that go on at once.

    A project holds no more bytes than the process has left for all others, so that a project that
    sends later still finds room. Where several projects send, only few requests of each go on at
    once: the event loop and the next commit are never full of a single project's.
    """

    def __init__(self) -> None:
        self._held = 0
        self._projects: dict[int | None, _Project] = {}
        # The project whose request came last, and the time since which it alone sends.
        self._last: int | None = None
        self._alone_from = 0.0

    def enter(self, project_id: int | None) -> _Project:
        """Returns a project's part, with a reservation more."""
        project = self._projects.get(project_id)
        if project is None:
            project = self._projects[project_id] = _Project(project_id)
        project.reservations += 1
        return project

    def hold(self, project: _Project, size: int) -> None:
        """Takes bytes.

        Raises:
            Problem: The project holds too many, or all together do.
        """
        if project.held + size > _CAPACITY_BYTES - self._held - size:
            raise Problem(
                "overloaded",
                "more bytes of requests wait than the service takes",
                headers={"Retry-After": "1"},
            )
        project.held += size
        self._held += size

    def leave(self, project: _Project, *, held: int, served: int) -> None:
        """Gives back the bytes of a reservation, and lets the requests that waited go on."""
        self._held -= held
        project.held -= held
        project.served -= served
        project.reservations -= 1
        while project.waiting and self._has_room(project, project.waiting[0].size):
            project.waiting.popleft().serve()
        if not project.reservations:
            del self._projects[project.project_id]

    def may_go_on(self, project: _Project, size: int) -> bool:
        """Tells whether another request of a project may be carried out now."""
        if project.project_id != self._last:
            self._last = project.project_id
            self._alone_from = asyncio.get_running_loop().time() + _ALONE_SECONDS
        return not project.waiting and self._has_room(project, size)

    def _has_room(self, project: _Project, size: int) -> bool:
        return (
            project.served == 0
            or project.served + size <= _SHARE_BYTES
            or self._alone_from < asyncio.get_running_loop().time()
        )


class Reservation:
    """The bytes that a request holds, from the first of its body until its answer is sent."""

    __slots__ = ("_held", "_project", "_queue", "_served", "_turn")

    def __init__(self, queue: FairQueue, project_id: int | None) -> None:
        self._queue = queue
        self._project = queue.enter(project_id)
        self._held = 0
        self._served = 0
        self._turn: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        """The work that it is, in bytes."""
        return max(self._held, _LEAST_BYTES)

    def hold(self, size: int) -> None:
        """Takes more bytes."""
        self._queue.hold(self._project, size)
        self._held += size

    async def turn(self) -> None:
        """Waits until the request may be carried out."""
        if self._queue.may_go_on(self._project, self.size):
            self.serve()
            return
        self._turn = asyncio.get_running_loop().create_future()
        self._project.waiting.append(self)
        await self._turn

    def serve(self) -> None:
        """Lets the request go on."""
        self._served = self.size
        self._project.served += self._served
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def release(self) -> None:
        """Gives everything back."""
        if self._turn is not None and not self._served:
            self._project.waiting.remove(self)
        self._queue.leave(self._project, held=self._held, served=self._served)
