"""The pipeline's steps from the log to a verdict."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy import Connection

from orchestration.pipeline.batch import RUN, Patience, compute, compute_alone
from orchestration.pipeline.drafts import Drafted, draft_bound, draft_waited_out
from orchestration.pipeline.follow_up import follow_decisions
from orchestration.pipeline.set_aside import draft_set_aside
from storage.experiments.freezing import Turn, take_turn
from storage.log.seen_commits import note_seen_commits
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.clock import closed_instant
from storage.schema.past_log import PastFiles
from storage.verdicts.announcements import announce_seen_base_moves
from storage.verdicts.keep_records import note_keep_records
from storage.verdicts.next_look import experiments_due, note_next_looks, put_off_looks
from storage.verdicts.progress import note_published, note_staged
from storage.verdicts.publication import Published, publish_verdicts, stage_evidence
from storage.verdicts.set_aside import (
    drop_decided,
    experiments_to_compute,
    experiments_to_freeze,
    experiments_to_publish,
)

# How long a run goes on with the policies of a project, in seconds.
_FREEZE_SECONDS = 20.0
# How long it freezes before it looks at what is frozen, and afterwards.
BEFORE_LOOKS, AFTER_LOOKS = 10.0, 50.0


def note_seen(connection: Connection) -> datetime:
    """Notes which builds users were served, and announces where that moved the base of a canary.

    Args:
        connection: In a transaction that is the only writer of derived tables.

    Returns how far it read the log.
    """
    as_of = closed_instant(connection)
    environments = note_seen_commits(connection, as_of=as_of)
    announce_seen_base_moves(connection, environments, known_at=as_of)
    return as_of


Begin = Callable[[], AbstractContextManager[Connection]]


class WholeDays(Protocol):
    """Reads whole days and sealed files; the definitions hand it to the steps."""

    def catch_up(self, connection: Connection, *, as_of: datetime, only: Sequence[str]) -> int:
        """Computes the experiments that are far behind; returns how many exposures are new."""
        ...

    def past_files(self, connection: Connection) -> AbstractContextManager[PastFiles]:
        """Opens the past log in its files."""
        ...


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """How many experiments got their policy in a run, and how many wait for the next."""

    frozen: int
    waiting: int


def freeze_bound(
    begin: Begin,
    days: WholeDays,
    *,
    as_of: datetime,
    patience: Patience = RUN,
    seconds: float = AFTER_LOOKS,
) -> Frozen:
    """Freezes the policies of the experiments that were bound up to a time, in turns.

    The project that was served longest ago has the first turn. The answers of a turn are kept for
    the next, in this run or a later run. Whoever's data allows no policy is set aside.

    Args:
        begin: Begins a transaction, which no other writer of derived tables waits for.
        as_of: A time up to which the log is final, and the builds that users had are noted.
        seconds: How long turns begin, of which the last ends soon after; one is taken in any case.
    """
    ends_at = time.monotonic() + seconds
    with begin() as connection:
        rows = experiments_to_freeze(connection, as_of=as_of, at_once=patience.retry_all)
    left = dict.fromkeys({row.project_id for row in rows}, _FREEZE_SECONDS)
    waiting, frozen, is_first = deque(rows), 0, True
    while waiting and (is_first or time.monotonic() < ends_at):
        row, is_first = waiting.popleft(), False
        if left[row.project_id] <= 0:
            continue
        begun = time.monotonic()
        seconds = min(left[row.project_id], ends_at - begun)
        turns = _turn(begin, days, row.experiment_id, patience=patience, left=seconds)
        frozen += sum(turn.is_done for turn in turns)
        if any(not turn.is_done and not turn.is_unanswered for turn in turns):
            waiting.append(row)
        left[row.project_id] -= time.monotonic() - begun
    return Frozen(frozen=frozen, waiting=len(rows) - frozen)


def _turn(
    begin: Begin, days: WholeDays, experiment_id: str, *, patience: Patience, left: float
) -> list[Turn]:
    """Takes a turn of an experiment; none where it is set aside."""
    with begin() as connection, days.past_files(connection) as files:

        def work(ids: Sequence[str]) -> Turn:
            return take_turn(connection, *ids, files=files, left=left)

        return compute_alone(connection, "experiments", experiment_id, work, patience=patience)


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """How far the log was read, and the exposures that were added."""

    as_of: datetime
    added: int


def expose(connection: Connection, days: WholeDays, *, patience: Patience = RUN) -> Exposed:
    """Takes the step of exposures: those of the blocks that have closed.

    As each step, in a transaction that is the only writer of derived tables. Whole steps of
    several runs may follow each other in any order: each reads its input from the store. An
    experiment whose data breaks a step is set aside; the others go on.
    """
    as_of = closed_instant(connection)

    def added(ids: Sequence[str]) -> int:
        caught_up = days.catch_up(connection, as_of=as_of, only=ids)
        return caught_up + extend_exposures(connection, as_of=as_of, only=ids)

    ids = experiments_to_compute(connection, "exposures")
    return Exposed(
        as_of=as_of, added=sum(compute(connection, "exposures", added, ids=ids, patience=patience))
    )


def close_cells(connection: Connection, days: WholeDays, *, patience: Patience = RUN) -> int:
    """Takes the step of cells: those whose outcomes have closed; returns how many came."""
    as_of = closed_instant(connection)

    def added(ids: Sequence[str]) -> int:
        # Where the first step was taken none is behind, but for those that this step broke on.
        days.catch_up(connection, as_of=as_of, only=ids)
        return extend_cells(connection, only=ids)

    ids = experiments_to_compute(connection, "cells")
    return sum(compute(connection, "cells", added, ids=ids, patience=patience))


def stage(connection: Connection, *, patience: Patience = RUN) -> list[Drafted]:
    """Takes the step of evidence: that of each open experiment, with its contract, unpublished."""
    return _staged(connection, lambda ids: ids, as_of=None, patience=patience)


def stage_due(
    connection: Connection, *, as_of: datetime | None = None, patience: Patience = RUN
) -> list[Drafted]:
    """Stages the evidence of the experiments whose next look may have come.

    For all others it would write the same once more. Changes of a new release come with
    the next run or the next look.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        as_of: How far the log was read; None for now.
    """

    def due(ids: Sequence[str]) -> Sequence[str]:
        return experiments_due(connection, only=ids)

    return _staged(connection, due, as_of=as_of, patience=patience)


def _staged(
    connection: Connection,
    chosen: Callable[[Sequence[str]], Sequence[str]],
    *,
    as_of: datetime | None,
    patience: Patience,
) -> list[Drafted]:
    def work(ids: Sequence[str]) -> list[Drafted]:
        drafted = draft_bound(connection, only=chosen(ids))
        drafts = [entry.draft for entry in drafted]
        stage_evidence(connection, drafts)
        looks = {draft.experiment_id: draft.next_look for draft in drafts}
        note_next_looks(
            connection, {name: look for name, look in looks.items() if look is not None}
        )
        return drafted

    until = closed_instant(connection) if as_of is None else as_of
    note_keep_records(connection)
    ids = experiments_to_compute(connection, "evidence")
    parts = compute(connection, "evidence", work, ids=ids, patience=patience)
    others = [*draft_waited_out(connection, as_of=until), *draft_set_aside(connection)]
    stage_evidence(connection, [entry.draft for entry in others])
    put_off_looks(connection)
    note_staged(connection)
    drafted = [entry for part in (*parts, others) for entry in part]
    return sorted(drafted, key=lambda entry: entry.draft.experiment_id)


def publish(connection: Connection, *, patience: Patience = RUN) -> list[Published]:
    """Takes the last step: publishes the staged evidence and returns the changed verdicts.

    In the same transaction come the effects that are measured after earlier decisions.
    """

    def changed(ids: Sequence[str]) -> list[Published]:
        return publish_verdicts(connection, only=ids)

    ids = experiments_to_publish(connection)
    parts = compute(connection, "verdicts", changed, ids=ids, patience=patience)
    published = [verdict for part in parts for verdict in part]
    ids = [verdict.experiment_id for verdict in published]
    follow_decisions(connection, ids, patience=patience)
    drop_decided(connection)
    note_published(connection)
    return published
