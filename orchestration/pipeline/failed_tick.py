"""Failures of ticks and of steps of runs, counted by stage for the monitoring of the store."""

from collections.abc import Generator
from contextlib import contextmanager, suppress

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from storage.upkeep.ticks import note_failed_tick


class NotNow(Exception):  # noqa: N818 - nothing is wrong: the work is for another tick or a run
    """Work is left to another process, or to later."""


@contextmanager
def failures_counted(engine: Engine, stage: str) -> Generator[None]:
    """Counts an error that ends a tick or a step of a run, by the stage that it ended."""
    try:
        yield
    except NotNow:
        raise
    except Exception:
        # Without the store, only the time since the last good tick or run shows the failure.
        with suppress(SQLAlchemyError), engine.begin() as connection:
            note_failed_tick(connection, stage=stage)
        raise
