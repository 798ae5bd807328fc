"""Admissions of a process: counted in memory, and added to the store every few seconds."""

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Self

from sqlalchemy import Connection

from api.runtime.store import Store
from api.wire.event_batch import EVENT_MEMBERS, Rejected
from api.wire.problem import Fault, Problem
from api.wire.shape import NO_VALUE, NULL_COMMIT
from domain.checklist.admissions import NO_UNIT
from domain.checklist.admissions import Admissions as Counts
from storage.log.admissions import add_admissions
from storage.log.events import note_names
from storage.log.received_events import add_name_counts
from storage.postgres.engine import StoreUnavailable

_NOTED_SECONDS = 5.0
# A process that stops has some seconds, and owes its clients more than its counts.
_PATIENCE_SECONDS = 3.0
# Anybody who has a public key can invent names: so many of a project are noted at a time, and so
# many wait for it, or are remembered as noted.
_MOST_NAMES, _MOST_HELD = 100, 1000
# Then all names are noted again, since the store says to an hour when each came last.
_FORGOTTEN_SECONDS = 600.0
# Names by project, by whether a write key sent them or a metric reads them, and a public key did.
Names = Mapping[tuple[int, bool, bool], Sequence[str]]
_MEMBER = re.compile(r"(?:/events/\d+)?/(\w+)", re.ASCII)


class Admissions:
    """Counts stored and refused events of each project, and their names; no request waits for it.

    A name that this process has not noted before is noted at once, since the evidence says which
    metrics' events never came; of a project with hundreds, each waits for its turn, but none for
    those that a public key may have invented. Counts that are
    not yet noted may be lost, with the process or while the store is away: they serve the set-up
    checklist, and faults of a set-up repeat.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[int, Counter[str]] = {}
        self._reasons: dict[int, str] = {}
        self._received: dict[int, Counter[str]] = {}
        self._lacking: dict[int, str] = {}
        self._names: dict[tuple[int, bool, bool], dict[str, None]] = {}
        self._noted: dict[tuple[int, bool, bool], set[str]] = {}
        self._remembered_since = time.monotonic()
        self._due, self._is_ending = asyncio.Event(), False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Notes the counts every few seconds, and at the end."""
        rounds = asyncio.create_task(self._rounds())
        try:
            yield self
        finally:
            self._is_ending = True
            self._due.set()
            await rounds

    def took(
        self,
        project_id: int,
        *,
        accepted: int,
        late: int,
        names: Sequence[str],
        trusted: bool = False,
        sources: Container[str] = (),
        rejected: Sequence[Rejected] = (),
        unknown: Iterable[str] = (),
        sampled_out: int = 0,
        notes: Mapping[str, int] = {},
    ) -> None:
        """Counts a request whose events were stored."""
        count = self._of(project_id)
        self.received(project_id, names)
        count["accepted"] += accepted
        count["late"] += late
        count["sampled_out"] += sampled_out
        count.update(notes)
        for name in dict.fromkeys(names):
            self._name((project_id, trusted, not trusted and name in sources), name)
        lacking = lacking_members(fault for event in rejected for fault in event.faults)
        self.lacked(project_id, [*unknown, *lacking])
        self._reject(project_id, [_reason(event.faults[0]) for event in rejected])

    def _name(self, kind: tuple[int, bool, bool], name: str) -> None:
        """Has a name wait to be noted, unless it was."""
        noted, waiting = self._noted.setdefault(kind, set()), self._names.setdefault(kind, {})
        if name not in noted and len(waiting) + len(noted) < _MOST_HELD:
            waiting[name] = None
            if len(noted) < _MOST_NAMES:
                self._due.set()

    def received(self, project_id: int, names: Sequence[str]) -> None:
        """Counts events by their names, as many names of a project at a time as may wait."""
        counts = self._received.setdefault(project_id, Counter())
        if len(counts) < _MOST_HELD:
            counts.update(names)

    def lacked(self, project_id: int, members: Sequence[str]) -> None:
        """Counts members, of a request to any address, that said nothing."""
        if members:
            self._counts.setdefault(project_id, Counter())["nothing"] += len(members)
            self._lacking[project_id] = members[-1]

    def refused(self, project_id: int, problem: Problem) -> None:
        """Counts a refused request: an event for each of its faults, or a single event."""
        count = self._of(project_id)
        if problem.code == "rate_limited":
            count["limited"] += 1
            return
        self._reject(project_id, [_reason(fault) for fault in problem.faults] or [problem.code])

    def _reject(self, project_id: int, reasons: Sequence[str]) -> None:
        count, others = self._counts[project_id], [each for each in reasons if each != NO_UNIT]
        count["without_unit"] += len(reasons) - len(others)
        count["rejected"] += len(others)
        if others:
            self._reasons[project_id] = others[0]

    def _of(self, project_id: int) -> Counter[str]:
        count = self._counts.setdefault(project_id, Counter())
        count["requests"] += 1
        return count

    async def _rounds(self) -> None:
        while not self._is_ending:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), _NOTED_SECONDS)
            self._due.clear()
            counted = {
                project_id: Counts(
                    reason=self._reasons.get(project_id),
                    lacking=self._lacking.get(project_id),
                    **count,
                )
                for project_id, count in self._counts.items()
            }
            names = {
                kind: list(islice(waiting, _MOST_NAMES))
                for kind, waiting in self._names.items()
                if waiting
            }
            received = self._received
            self._counts, self._reasons, self._received, self._lacking = {}, {}, {}, {}
            if counted or names or received:
                with contextlib.suppress(StoreUnavailable, TimeoutError):
                    async with asyncio.timeout(_PATIENCE_SECONDS):
                        await self._store.run(partial(_add, counted, names, received))
                    self._remember(names)

    def _remember(self, names: Names) -> None:
        if time.monotonic() - self._remembered_since > _FORGOTTEN_SECONDS:
            self._noted, self._remembered_since = {}, time.monotonic()
        for kind, noted in names.items():
            self._noted.setdefault(kind, set()).update(noted)
            waiting = self._names[kind]
            for name in noted:
                del waiting[name]
            if not waiting:
                del self._names[kind]


def _add(
    counted: Mapping[int, Counts],
    names: Names,
    received: Mapping[int, Mapping[str, int]],
    connection: Connection,
) -> None:
    if counted:
        add_admissions(connection, counted)
    for kind in ((True, False), (False, True), (False, False)):
        of_kind = {
            project_id: some for (project_id, *own), some in names.items() if tuple(own) == kind
        }
        note_names(connection, of_kind, vouched=kind[0], is_read=kind[1])
    add_name_counts(connection, received)


def lacking_members(faults: Iterable[Fault]) -> list[str]:
    """Returns the members whose value was a word for nothing, or git's null id."""
    return [
        next(part for part in reversed(fault.at.split("/")) if not part.isdigit())
        for fault in faults
        if fault.code in (NO_VALUE, NULL_COMMIT)
    ]


def _reason(fault: Fault) -> str:
    """Returns a fault in our own words: members that the client invented are not named."""
    match = _MEMBER.match(fault.at)
    member = None if match is None else match[1]
    return f"{fault.code} ({member})" if member in EVENT_MEMBERS else fault.code
