"""The walk: its four steps from the log to a verdict, and all of them in one go."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

import psycopg
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from orchestration.batch import RUN, TICK, Patience, compute
from orchestration.evidence import Drafted, draft_bound, draft_waited_out
from orchestration.failed_tick import NotNow, failures_counted
from orchestration.set_aside import draft_set_aside
from storage.clock import closed_instant, try_claim_derived_tables
from storage.gauges import note_walk
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.progress import note_published, note_staged
from storage.rest import experiments_due, note_rests, put_off_looks
from storage.set_aside import drop_decided, experiments_to_compute, experiments_to_publish
from storage.verdicts import Published, publish_verdicts, stage_evidence

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """What the first step did: how far it read the log, and the exposures that it added."""

    as_of: datetime
    added: int


def expose(connection: Connection, *, patience: Patience = RUN) -> Exposed:
    """Takes the first step: the exposures of the blocks that have closed.

    As each step, in a transaction that is the only writer of derived tables. Whole steps of
    several walks may follow one another in any order: each reads what it needs from the store.
    Whose data breaks a step is set aside; the others go on.
    """
    as_of = closed_instant(connection)

    def added(ids: Sequence[str]) -> int:
        return extend_exposures(connection, as_of=as_of, only=ids)

    ids = experiments_to_compute(connection, "exposures")
    return Exposed(
        as_of=as_of,
        added=sum(compute(connection, "exposures", added, ids=ids, patience=patience)),
    )


def close_cells(connection: Connection, *, patience: Patience = RUN) -> int:
    """Takes the second step: the cells whose outcomes have closed; returns how many came."""

    def added(ids: Sequence[str]) -> int:
        return extend_cells(connection, only=ids)

    ids = experiments_to_compute(connection, "cells")
    return sum(compute(connection, "cells", added, ids=ids, patience=patience))


def stage(connection: Connection, *, patience: Patience = RUN) -> list[Drafted]:
    """Takes the third step: evidence and contract of each open experiment, seen by no reader."""

    def drafted(ids: Sequence[str]) -> list[Drafted]:
        return _kept(connection, draft_bound(connection, only=ids))

    return _staged(connection, drafted, as_of=None, patience=patience)


def stage_due(
    connection: Connection, *, as_of: datetime | None = None, patience: Patience = RUN
) -> list[Drafted]:
    """Takes the third step for the experiments alone of which a look may have come.

    Of all others it would write the same once more. What a new release says otherwise comes with
    the next run or the next look.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        as_of: How far the log was read; None for now.
        patience: How long it may take.
    """

    def drafted(ids: Sequence[str]) -> list[Drafted]:
        due = experiments_due(connection, only=ids)
        return _kept(connection, draft_bound(connection, only=due))

    return _staged(connection, drafted, as_of=as_of, patience=patience)


def _kept(connection: Connection, drafted: list[Drafted]) -> list[Drafted]:
    """Stages the drafts of experiments, with what each of them now waits for."""
    drafts = [one.draft for one in drafted]
    stage_evidence(connection, drafts)
    note_rests(connection, {one.experiment_id: one.rest for one in drafts if one.rest is not None})
    return drafted


def _staged(
    connection: Connection,
    work: Callable[[Sequence[str]], list[Drafted]],
    *,
    as_of: datetime | None,
    patience: Patience,
) -> list[Drafted]:
    until = closed_instant(connection) if as_of is None else as_of
    ids = experiments_to_compute(connection, "evidence")
    parts = compute(connection, "evidence", work, ids=ids, patience=patience)
    others = [*draft_waited_out(connection, as_of=until), *draft_set_aside(connection)]
    stage_evidence(connection, [one.draft for one in others])
    put_off_looks(connection)
    note_staged(connection)
    drafted = [one for part in (*parts, others) for one in part]
    return sorted(drafted, key=lambda one: one.draft.experiment_id)


def publish(connection: Connection, *, patience: Patience = RUN) -> list[Published]:
    """Takes the last step: what is staged becomes what is served; returns what that changed."""

    def changed(ids: Sequence[str]) -> list[Published]:
        return publish_verdicts(connection, only=ids)

    ids = experiments_to_publish(connection)
    parts = compute(connection, "verdicts", changed, ids=ids, patience=patience)
    published = [one for part in parts for one in part]
    drop_decided(connection)
    note_published(connection, published)
    return published


class WalkUnderWay(NotNow):
    """Another transaction writes derived tables now."""


class WalkTooLong(NotNow):
    """The walk takes longer than it was given; what it finished stays."""


@dataclass(frozen=True, kw_only=True)
class Walked:
    """What a walk did.

    Attributes:
        walked_to: How far it read the log.
        seconds: How long each step took, in their order.
        exposures: How many it added.
        cells: How many it added.
        experiments: How many had something to say: how many it drafted evidence of.
        published: The verdicts that it changed.
    """

    walked_to: datetime
    seconds: Mapping[str, float]
    exposures: int
    cells: int
    experiments: int
    published: Sequence[Published]


def walk(engine: Engine, *, most_seconds: float) -> Walked:
    """Walks from the log to the verdicts, each step a transaction, waiting for no other walk.

    Args:
        engine: To the store.
        most_seconds: How long it may take; a step in Python alone may overdraw it.

    Raises:
        WalkUnderWay: Another walks, or somebody is being forgotten.
        WalkTooLong: Time ran out. What is left undone is seen by `unwalked_from`.
    """
    steps = _Steps(engine=engine, ends_at=time.monotonic() + most_seconds)
    exposed = steps.take("exposures", partial(expose, patience=TICK))
    cells = steps.take("session_cells", partial(close_cells, patience=TICK))
    drafted = steps.take("evidence", partial(stage_due, patience=TICK))
    published = steps.take("verdicts", partial(publish, patience=TICK))
    with engine.begin() as connection:
        note_walk(connection, walked_to=exposed.as_of, seconds=steps.seconds)
    return Walked(
        walked_to=exposed.as_of,
        seconds=steps.seconds,
        exposures=exposed.added,
        cells=cells,
        experiments=len(drafted),
        published=published,
    )


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """Steps under one limit of time, each in a transaction that was the only writer at once."""

    engine: Engine
    ends_at: float
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def take(self, name: str, step: Callable[[Connection], ResultT]) -> ResultT:
        begun = time.monotonic()
        with failures_counted(self.engine, name), self._limited() as connection:
            if not try_claim_derived_tables(connection):
                raise WalkUnderWay("another walk is under way")
            done = step(connection)
        self.seconds[name] = time.monotonic() - begun
        return done

    @contextmanager
    def _limited(self) -> Generator[Connection]:
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise WalkTooLong("the walk takes too long for one tick")
        try:
            with self.engine.begin() as connection:
                connection.execute(
                    text("SELECT set_config('statement_timeout', :ms, true)"),
                    {"ms": str(max(1, round(1000 * left)))},
                )
                yield connection
        except OperationalError as error:
            if isinstance(error.orig, psycopg.errors.QueryCanceled):
                raise WalkTooLong("the walk takes too long for one tick") from error
            raise
