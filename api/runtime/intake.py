"""The intake: every runtime event of a request is read, stored and counted here."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from starlette.requests import Request

from api.runtime.keyring import Caller
from api.runtime.origin import require_origin
from api.runtime.state import Runtime
from api.wire.body import LARGE, MEBIBYTE, apart
from api.wire.event_batch import Batch, EventReader, Rejected
from api.wire.problem import Problem
from storage.log.events import EventLines, append_history, event_lines
from storage.tenants.keys import KeyKind

ReadT = TypeVar("ReadT")


@dataclass(frozen=True, kw_only=True)
class Intake:
    """Takes the events of a request.

    Attributes:
        shared: The state of the process.
        caller: Who sends them.
        history: Whether they are received when they occurred.
    """

    shared: Runtime
    caller: Caller
    history: bool = False

    def _reader(self) -> EventReader:
        return EventReader(
            project_id=self.caller.project_id,
            now=self.shared.writer.now(),
            trusted=self.caller.kind is KeyKind.WRITE,
            history=self.history,
            pseudonyms=self.shared.pseudonyms,
            signatures=self.shared.signatures,
            epochs=self.caller.settings.assignment_epochs,
            # History was measured whole: experiments take their sample of it.
            sample=None if self.history else self.caller.sample,
        )

    async def read(
        self,
        request: Request,
        reading: Callable[[EventReader, bytes], ReadT],
        *,
        limit: int = MEBIBYTE,
        media: tuple[str, ...],
    ) -> ReadT:
        """Reads a body by a function; others are answered while a large export is read.

        Raises:
            Problem: The request is not admitted, or its body is none that is taken.
        """
        require_origin(request, self.caller)
        # Nothing of the body is kept while its events wait: memory that is used again is quicker.
        raw = await self.shared.rate_limit.body(
            request, self.caller, limit=limit, media=media, gzip=True
        )
        read = partial(reading, self._reader(), raw)
        return await apart(read) if len(raw) > LARGE else read()

    async def store(self, batch: Batch) -> int:
        """Stores the events of a batch and returns how many of them came late."""
        if self.history:
            # History tells nothing of the senders of now.
            await self.shared.store.run(partial(append_history, events=batch.events))
            self.shared.meters.accepted.inc(len(batch.events))
            return 0
        lines = event_lines(batch.events)
        return await self.store_lines(lines, rejected=batch.rejected, sampled_out=batch.sampled_out)

    async def store_lines(
        self, lines: EventLines, *, rejected: Sequence[Rejected] = (), sampled_out: int = 0
    ) -> int:
        """Stores events that are lines already, and returns how many of them came late."""
        late = await self._appended(lines) if lines.names else 0
        self.shared.admissions.took(
            self.caller.project_id,
            accepted=len(lines.names),
            late=late,
            names=lines.names,
            rejected=rejected,
            sampled_out=sampled_out,
        )
        return late

    def count(self, batch: Batch) -> None:
        """Counts the events of a batch that are not stored."""
        if batch.rejected:
            self.shared.meters.rejected.inc(len(batch.rejected))
        if batch.sampled_out:
            self.shared.meters.sampled_out.inc(batch.sampled_out)

    def refuse(self, problem: Problem) -> None:
        """Counts a request that was refused whole."""
        if not self.history:
            self.shared.admissions.refused(self.caller.project_id, problem)

    async def _appended(self, lines: EventLines) -> int:
        began = time.perf_counter()
        received_at = await self.shared.writer.append(lines)
        self.shared.meters.commit_seconds.observe(time.perf_counter() - began)
        oldest = received_at - self.caller.late_after
        late = sum([moment < oldest for moment in lines.occurred_at])
        self.shared.meters.accepted.inc(len(lines.occurred_at))
        if late:
            self.shared.meters.late.inc(late)
        return late
