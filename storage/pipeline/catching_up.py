"""Catching up: experiments hours behind the log are read by the engine of whole days.

So are those of an import before their first evaluation, and all that were open while the service
was down. From there on PostgreSQL adds the minute's increment.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, text

from storage.log.lake import open_lake
from storage.log.reader import read_apart
from storage.log.sealed_hours import moved_to
from storage.pipeline.block_ranges import compute_cells, compute_exposures
from storage.pipeline.cursors import set_cursors
from storage.pipeline.engines.day_engines import DayEngineSettings, open_day_engine
from storage.pipeline.engines.engine import DayEngine
from storage.pipeline.experiments import ReadExperiment
from storage.pipeline.increment import note_outcomes, unread_exposures, unread_outcomes
from storage.pipeline.inputs import ReadOutcomes
from storage.pipeline.moments import SECOND, microseconds
from storage.pipeline.samples import sample_grown
from storage.pipeline.steps import AHEAD
from storage.pipeline.transfer.count_rows import (
    copy_cells,
    register_experiment_ids,
)
from storage.pipeline.transfer.unit_rows import copy_computed
from storage.pipeline.transfer.upserts import (
    KEEP_FIRST_AMOUNT,
    KEEP_FIRST_CONVERSION,
    KEEP_FIRST_SIGHTING,
    KEEP_STORED,
)
from storage.schema.tables import metadata

# The longest part of the log that PostgreSQL reads: well beyond the hour between two runs of the
# day schedule, since a service that is idle is not behind.
LONGEST_INCREMENT = 3 * 3600 * SECOND

_UPSERTS = {
    "exposures": KEEP_STORED,
    "strata": KEEP_STORED,
    "sightings": KEEP_FIRST_SIGHTING,
    "block_units": KEEP_STORED,
    "conversions": KEEP_FIRST_CONVERSION,
    "amounts": KEEP_FIRST_AMOUNT,
    "cells": KEEP_STORED,
}
_COMPUTED = "computed_"


def _in_lake_before(connection: Connection) -> int:
    """Returns up to when PostgreSQL may lack events, in microseconds since the epoch."""
    moved = moved_to(connection)
    return 0 if moved is None else microseconds(moved)


def _is_behind(scope: ReadExperiment | ReadOutcomes, in_lake: int) -> bool:
    """Tells whether an experiment is read by the engine of whole days."""
    unread = scope.to_block - scope.from_block
    return unread > LONGEST_INCREMENT or (unread > 0 and scope.from_block - AHEAD < in_lake)


def catch_up_exposures(
    connection: Connection, *, as_of: datetime, only: Sequence[str], settings: DayEngineSettings
) -> int:
    """Adds the exposures of the experiments that are far behind.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        as_of: A time up to which the log is final.
        only: The experiments to look at; those that are far behind are read.
        settings: Which engine computes.

    Returns:
        The number of new exposures.

    Raises:
        UnreadablePolicyError: The policy of one of them is of another version, or broken.
        TooManyAssignmentsError: One of them has more assignments than can be numbered.
    """
    in_lake = _in_lake_before(connection)
    behind = [
        scope
        for scope in unread_exposures(connection, as_of=as_of, only=only)
        if _is_behind(scope, in_lake)
    ]
    if not behind:
        return 0
    with (
        read_apart(connection.engine, open_lake()) as log,
        open_day_engine(_limited(connection, settings), lake=log.lake) as engine,
    ):
        compute_exposures(engine, log, connection, behind)
        register_experiment_ids(engine, [scope.experiment for scope in behind])
        for table in ("strata", "block_units", "sightings"):
            _add_rows(engine, connection, table)
        added = _add_rows(engine, connection, "exposures")
    set_cursors(
        connection,
        [("exposures", scope.experiment.experiment_id, scope.to_block) for scope in behind],
    )
    return added


def catch_up_cells(
    connection: Connection, *, only: Sequence[str], settings: DayEngineSettings
) -> int:
    """Adds the outcomes and cells of the experiments that are far behind their exposures.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        only: The experiments to look at; those that are far behind are read.
        settings: Which engine computes.

    Returns:
        The number of new cells.

    Raises:
        UnreadablePolicyError: The policy of one of them is of another version, or broken.
    """
    exposed = unread_outcomes(connection, only=only)
    in_lake = _in_lake_before(connection)
    behind = [scope for scope in exposed if _is_behind(scope, in_lake)]
    if not behind:
        return 0
    with (
        read_apart(connection.engine, open_lake()) as log,
        open_day_engine(_limited(connection, settings), lake=log.lake) as engine,
    ):
        compute_cells(engine, log, connection, behind)
        register_experiment_ids(engine, [scope.experiment for scope in behind])
        for table in ("conversions", "amounts"):
            _add_rows(engine, connection, table)
        added = _add(engine, connection, "cells", copy_cells)
    note_outcomes(connection, behind)
    return added


_STATEMENT_TIMEOUT = text(
    "SELECT setting::float / 1000 FROM pg_settings WHERE name = 'statement_timeout'"
)


def _limited(connection: Connection, settings: DayEngineSettings) -> DayEngineSettings:
    """Returns settings by which a step takes no longer than a statement of the connection may."""
    seconds = connection.execute(_STATEMENT_TIMEOUT).scalar_one()
    return replace(settings, seconds=seconds or None)


_IDS = "SELECT experiment_id FROM experiment_ids"
_HAS_NONE = "SELECT NOT EXISTS (SELECT FROM {table} WHERE experiment_id = ANY(:ids))"


def _add_rows(engine: DayEngine, connection: Connection, table: str) -> int:
    """Adds the computed rows of a derived table.

    Of experiments that have none yet no key can be stored already: their rows are copied at once,
    in the order of their keys, for two thirds of PostgreSQL's time.
    """
    ids = [experiment_id for (experiment_id,) in engine.rows(_IDS)]
    if connection.execute(text(_HAS_NONE.format(table=table)), {"ids": ids}).scalar_one():
        keys = [column.name for column in metadata.tables[table].primary_key]
        added = copy_computed(engine, connection, table, order=keys)
        sample_grown(connection, table, added)
        return added

    def copy_table(engine: DayEngine, connection: Connection, *, prefix: str) -> None:
        copy_computed(engine, connection, table, prefix=prefix)

    return _add(engine, connection, table, copy_table)


def _add(
    engine: DayEngine, connection: Connection, table: str, copy_table: Callable[..., None]
) -> int:
    """Copies a table's rows beside it, then inserts them into it in the order of their keys."""
    computed = f"{_COMPUTED}{table}"
    connection.execute(
        text(f"CREATE TEMP TABLE {computed} (LIKE {table} INCLUDING DEFAULTS) ON COMMIT DROP")
    )
    copy_table(engine, connection, prefix=_COMPUTED)
    keys = ", ".join(column.name for column in metadata.tables[table].primary_key)
    added = connection.execute(
        text(f"INSERT INTO {table} SELECT * FROM {computed} ORDER BY {keys} {_UPSERTS[table]}")
    ).rowcount
    connection.execute(text(f"DROP TABLE {computed}"))
    sample_grown(connection, table, added)
    return added
