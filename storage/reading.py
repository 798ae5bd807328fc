"""A reading of the log apart from the served tables: as of an earlier time, or from nothing."""

import contextlib
from collections.abc import Generator

from sqlalchemy import Connection, Engine, text

from storage.clock import claim_derived_tables
from storage.experiments import publish_waiting
from storage.tables import DERIVED, experiments


@contextlib.contextmanager
def separate_reading(engine: Engine) -> Generator[Connection]:
    """Yields a connection on which the derived tables are empty, temporary and its own.

    Temporary tables come first in every search path: the very statements that fill the served
    tables fill these instead. All is rolled back at the end.
    """
    with engine.connect() as connection, connection.begin() as transaction:
        # One state of the log: events that are forgotten meanwhile and their tombstones would
        # else both be read.
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        for table in DERIVED:
            connection.execute(
                text(
                    f"CREATE TEMP TABLE {table.name}"
                    f" (LIKE {table.name} INCLUDING DEFAULTS INCLUDING INDEXES) ON COMMIT DROP"
                )
            )
        try:
            yield connection
        finally:
            transaction.rollback()


def empty_derived_tables(connection: Connection) -> None:
    """Empties everything that is derived from the log, verdicts included, to be filled again."""
    claim_derived_tables(connection)
    connection.execute(text("SET LOCAL deploy_reward.rebuild = 'on'"))
    connection.execute(text(f"TRUNCATE {', '.join(table.name for table in DERIVED)}"))
    for row in connection.execute(experiments.select().order_by(experiments.c.experiment_id)).all():
        publish_waiting(connection, row.experiment_id, row.project_id)
