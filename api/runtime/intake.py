"""The intake: every runtime event of a request is read, stored and counted here."""

import time
from collections.abc import Callable
from functools import partial

from starlette.requests import Request

from api.runtime.keyring import Caller
from api.runtime.origin import require_origin
from api.runtime.state import Runtime, runtime
from api.wire.body import LARGE, MEBIBYTE, apart
from api.wire.event_batch import Batch, EventReader
from api.wire.problem import Problem, invalid
from storage.log.events import append_history, event_lines
from storage.tenants.keys import KeyKind


async def take_events(
    request: Request,
    caller: Caller,
    *,
    media: tuple[str, ...],
    limit: int = MEBIBYTE,
    read: Callable[[EventReader, bytes], Batch] = EventReader.read,
    history: bool = False,
    may_be_empty: bool = False,
) -> tuple[Batch, int]:
    """Takes the events of a request: they are stored once this returns.

    Args:
        limit: The most bytes of the body.

    Returns:
        The events read, and how many of those stored came too late for any verdict.

    Raises:
        Problem: The request or its body is refused, or each of its events.
    """
    shared = runtime(request)
    try:
        require_origin(request, caller)
        raw = await shared.rate_limit.body(request, caller, limit=limit, media=media, gzip=True)
        reader = EventReader(
            project_id=caller.project_id,
            now=shared.writer.now(),
            trusted=caller.kind is KeyKind.WRITE,
            history=history,
            pseudonyms=shared.pseudonyms,
            signatures=shared.signatures,
            epochs=caller.settings.assignment_epochs,
            # History was measured whole: experiments take their sample of it.
            sample=None if history else caller.sample,
            unit=caller.settings.unit_property,
        )
        reading = partial(read, reader, raw)
        batch = await apart(reading) if len(raw) > LARGE else reading()
        # Nothing of the body is kept while its events wait: memory that is used again is quicker.
        del raw, reading
        if batch.rejected:
            shared.meters.rejected.inc(len(batch.rejected))
        if batch.sampled_out:
            shared.meters.sampled_out.inc(batch.sampled_out)
        if not (batch.accepted or batch.sampled_out or may_be_empty):
            raise invalid(batch.faults)
        if history:
            await shared.store.run(partial(append_history, events=batch.events))
            late = 0
        else:
            late = await _store(shared, caller, batch)
        shared.meters.accepted.inc(batch.accepted)
    except Problem as problem:
        # A replayed event says nothing about today's senders.
        if not history:
            shared.admissions.refused(caller.project_id, problem)
        raise
    return batch, late


async def _store(shared: Runtime, caller: Caller, batch: Batch) -> int:
    """Stores events that came now, and returns how many of them came late."""
    lines = batch.lines or event_lines(batch.events)
    late = 0
    if lines.names:
        began = time.perf_counter()
        received_at = await shared.writer.append(lines)
        shared.meters.commit_seconds.observe(time.perf_counter() - began)
        oldest = received_at - caller.late_after
        late = sum([moment < oldest for moment in lines.occurred_at])
    if late:
        shared.meters.late.inc(late)
    shared.admissions.took(
        caller.project_id,
        accepted=len(lines.names),
        late=late,
        names=lines.names,
        trusted=caller.kind is KeyKind.WRITE,
        sources=caller.sources,
        rejected=batch.rejected,
        unknown=list(batch.unknown.elements()),
        sampled_out=batch.sampled_out,
        notes=batch.notes,
    )
    return late
