"""The walk: its four steps from the log to a verdict, and all of them in one go."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import psycopg
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from orchestration.evidence import Drafted, draft_evidence
from storage.cells import extend_cells
from storage.clock import closed_instant, try_claim_derived_tables
from storage.exposures import extend_exposures
from storage.gauges import note_walk
from storage.progress import note_published, note_staged
from storage.rest import experiments_due, note_rests, put_off_looks
from storage.verdicts import Published, publish_verdicts, stage_evidence

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """What the first step did: how far it read the log, and the exposures that it added."""

    as_of: datetime
    added: int


def expose(connection: Connection) -> Exposed:
    """Takes the first step: the exposures of the blocks that have closed.

    As each step, in a transaction that is the only writer of derived tables. Whole steps of
    several walks may follow one another in any order: each reads what it needs from the store.
    """
    as_of = closed_instant(connection)
    return Exposed(as_of=as_of, added=extend_exposures(connection, as_of=as_of))


def close_cells(connection: Connection) -> int:
    """Takes the second step: the cells whose outcomes have closed; returns how many came."""
    return extend_cells(connection)


def stage(connection: Connection) -> list[Drafted]:
    """Takes the third step: evidence and contract of each open experiment, seen by no reader."""
    return _staged(connection, only=None)


def stage_due(connection: Connection, *, as_of: datetime | None = None) -> list[Drafted]:
    """Takes the third step for the experiments alone of which a look may have come.

    Of all others it would write the same once more. What a new release says otherwise comes with
    the next run or the next look.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        as_of: How far the log was read; None for now.
    """
    return _staged(connection, only=experiments_due(connection), as_of=as_of)


def _staged(
    connection: Connection, *, only: Sequence[str] | None, as_of: datetime | None = None
) -> list[Drafted]:
    until = closed_instant(connection) if as_of is None else as_of
    drafted = draft_evidence(connection, as_of=until, only=only)
    drafts = [one.draft for one in drafted]
    stage_evidence(connection, drafts)
    note_rests(connection, {one.experiment_id: one.rest for one in drafts if one.rest is not None})
    put_off_looks(connection)
    note_staged(connection)
    return drafted


def publish(connection: Connection) -> list[Published]:
    """Takes the last step: what is staged becomes what is served; returns what that changed."""
    published = publish_verdicts(connection)
    note_published(connection, published)
    return published


class WalkUnderWay(Exception):  # noqa: N818 - nothing is wrong: somebody else does the work
    """Another transaction writes derived tables now."""


class WalkTooLong(Exception):  # noqa: N818 - a state of affairs, told to whoever can take longer
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
    exposed = steps.take("exposures", expose)
    cells = steps.take("session_cells", close_cells)
    drafted = steps.take("evidence", stage_due)
    published = steps.take("verdicts", publish)
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
        with self._limited() as connection:
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
