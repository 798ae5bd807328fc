"""The log as a transaction of its own sees it."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text

from storage.log.lake import Lake, open_lake
from storage.log.reader import SealedLog, keep_log, open_log


@contextmanager
def reading(engine: Engine, lake: Lake | None = None) -> Iterator[SealedLog]:
    """Yields the log of a store; of the tests' own lake where none is named."""
    with engine.begin() as connection:
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        keep_log(connection)
        with open_log(connection, lake or open_lake()) as log:
            yield log
