"""Batch: a stage's experiments worked on together; whichever's data breaks it is set aside.

Work on a batch is done in a savepoint. Where an error of the data ends it, all of it is undone and
parts of the batch are tried, until the experiment that breaks it is alone.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, text

from storage.upkeep.passing_error import is_passing, is_timeout
from storage.verdicts.set_aside import error_line, experiments_to_retry, set_aside, take_back

ResultT = TypeVar("ResultT")
Work = Callable[[Sequence[str]], ResultT]
# Into so many parts a batch is cut that an experiment of it breaks.
_PARTS = 8
# If more experiments than this break at once, the rest waits for the next tick.
MOST_SET_ASIDE = 20
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a statement may take, in seconds, and who is tried again.

    Attributes:
        together: For a batch of several; None where the transaction's own limit holds, and ends it.
    """

    together: float | None
    alone: float
    retry_all: bool


# A run has a quarter of an hour. The fast schedule's come as blocks close: there each experiment
# that is set aside waits for a time of its own, ever longer.
FAST = Patience(together=200.0, alone=120.0, retry_all=False)
RUN = Patience(together=200.0, alone=120.0, retry_all=True)


def compute(
    connection: Connection,
    stage: str,
    work: Work[ResultT],
    *,
    ids: Sequence[str],
    patience: Patience,
) -> list[ResultT]:
    """Does a stage's work for experiments whose data lets it; a result for each part of the batch.

    Args:
        connection: In a transaction that is the only writer of derived tables.
    """
    done, broken = work_apart(connection, ids, work, patience=patience)
    for experiment_id, error in broken.items():
        set_aside(connection, experiment_id, stage=stage, error=error)
    for experiment_id in experiments_to_retry(connection, stage, at_once=patience.retry_all):
        if experiment_id not in broken:
            done += compute_alone(connection, stage, experiment_id, work, patience=patience)
    return done


def compute_alone(
    connection: Connection,
    stage: str,
    experiment_id: str,
    work: Work[ResultT],
    *,
    patience: Patience,
) -> list[ResultT]:
    """Does a stage's work for a single experiment; returns nothing where it is set aside."""
    result = _tried(connection, [experiment_id], work, seconds=patience.alone)
    if isinstance(result, Exception):
        set_aside(connection, experiment_id, stage=stage, error=result)
        return []
    take_back(connection, experiment_id, stage=stage)
    return [result]


def work_apart(
    connection: Connection,
    ids: Sequence[str],
    work: Work[ResultT],
    *,
    patience: Patience,
    limit: int = MOST_SET_ASIDE,
) -> tuple[list[ResultT], dict[str, Exception]]:
    """Returns work's result for each part of the batch, and the errors of what breaks it by id."""
    done: list[ResultT] = []
    broken: dict[str, Exception] = {}
    waiting = [list(ids)] if ids else []
    while waiting and len(broken) < limit:
        part = waiting.pop(0)
        seconds = patience.together
        if seconds is not None and len(part) < len(ids):
            seconds = max(patience.alone, seconds / _PARTS)
        result = _tried(connection, part, work, seconds=seconds)
        if not isinstance(result, Exception):
            done.append(result)
        elif len(part) == 1:
            broken[part[0]] = result
            _LOG.warning("%s is left out: %s", part[0], error_line(result))
        else:
            size = -(-len(part) // _PARTS)
            waiting += [part[begin : begin + size] for begin in range(0, len(part), size)]
    return done, broken


def _tried(
    connection: Connection, ids: Sequence[str], work: Work[ResultT], *, seconds: float | None
) -> ResultT | Exception:
    """Does work in a savepoint; returns the error of the data that ended it, if any.

    Errors that say nothing of the data pass: a lost connection, or the end of a time that was given
    to the whole transaction.
    """
    try:
        with connection.begin_nested(), _limited(connection, seconds):
            return work(ids)
    except Exception as error:
        if is_passing(error) or (seconds is None and is_timeout(error)):
            raise
        return error


@contextmanager
def _limited(connection: Connection, seconds: float | None) -> Generator[None]:
    """Limits each statement; where an error ends the savepoint, the limit before it holds again."""
    if seconds is None:
        yield
        return
    limit = text("SELECT set_config('statement_timeout', :limit, true)")
    before = connection.execute(text("SHOW statement_timeout")).scalar_one()
    connection.execute(limit, {"limit": f"{max(1, round(1000 * seconds))}ms"})
    yield
    connection.execute(limit, {"limit": before})
