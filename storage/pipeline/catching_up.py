"""Catching up: experiments hours behind the log are read by the engine of whole days.

So are those of an import before their first evaluation, and all that were open while the service
was down. From there on PostgreSQL adds the minute's increment. An experiment that is over when it
is first read, as most of an import are, meets no unit again: of its units no rows are stored but
those that evidence is read from.
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
from storage.pipeline.derived_rows import copy_evidence_rows
from storage.pipeline.engines.day_engines import DayEngineSettings, open_day_engine
from storage.pipeline.engines.engine import DayEngine
from storage.pipeline.experiments import PipelineExperiment, ReadExperiment
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
from storage.pipeline.whole_lives import compute_whole_lives
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
    over = [scope.experiment for scope in behind if scope.is_whole_life]
    begun = [scope for scope in behind if not scope.is_whole_life]
    added = _add_whole_lives(connection, over, as_of=as_of, settings=settings) if over else 0
    added += _add_exposures(connection, begun, settings=settings) if begun else 0
    set_cursors(
        connection,
        [("exposures", scope.experiment.experiment_id, scope.to_block) for scope in behind],
    )
    return added


def _add_exposures(
    connection: Connection, read: Sequence[ReadExperiment], *, settings: DayEngineSettings
) -> int:
    with (
        read_apart(connection.engine, open_lake()) as log,
        open_day_engine(_limited(connection, settings), lake=log.lake) as engine,
    ):
        compute_exposures(engine, log, connection, read)
        register_experiment_ids(engine, [scope.experiment for scope in read])
        for table in ("strata", "block_units", "sightings"):
            _add_rows(engine, connection, table)
        return _add_rows(engine, connection, "exposures")


_UNITS = """
SELECT x.experiment_id, count(*) AS units
FROM new_exposures AS r JOIN experiment_ids AS x ON x.number = r.number
GROUP BY x.experiment_id
"""
_NOTE_WHOLE_LIFE = text("INSERT INTO whole_lives (experiment_id, units) VALUES (:id, :units)")


def _add_whole_lives(
    connection: Connection,
    experiments: Sequence[PipelineExperiment],
    *,
    as_of: datetime,
    settings: DayEngineSettings,
) -> int:
    """Adds the rows that evidence is read from, cells included, and returns the number of units.

    The cells' own step has nothing to do but to let them be read.
    """
    with (
        read_apart(connection.engine, open_lake()) as log,
        open_day_engine(_limited(connection, settings), lake=log.lake) as engine,
    ):
        lives = compute_whole_lives(engine, log, experiments, as_of=microseconds(as_of))
        copy_evidence_rows(connection, lives)
        units: dict[str, int] = {row[0]: row[1] for row in engine.rows(_UNITS)}
    connection.execute(
        _NOTE_WHOLE_LIFE,
        [
            {"id": experiment.experiment_id, "units": units.get(experiment.experiment_id, 0)}
            for experiment in experiments
        ],
    )
    return sum(units.values())


_WHOLE = text("""
SELECT experiment_id FROM whole_lives WHERE experiment_id = ANY(:ids)
""")
_CELLS = text("SELECT count(*) FROM cells WHERE experiment_id = ANY(:ids)")


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
    unread = [
        scope
        for scope in unread_outcomes(connection, only=only)
        if scope.to_block > scope.from_block
    ]
    if not unread:
        return 0
    ids = [scope.experiment.experiment_id for scope in unread]
    whole = set(connection.execute(_WHOLE, {"ids": ids}).scalars())
    in_lake = _in_lake_before(connection)
    begun = [
        scope
        for scope in unread
        if scope.experiment.experiment_id not in whole and _is_behind(scope, in_lake)
    ]
    added: int = connection.execute(_CELLS, {"ids": list(whole)}).scalar_one()
    added += _add_cells(connection, begun, settings=settings) if begun else 0
    read = whole | {scope.experiment.experiment_id for scope in begun}
    note_outcomes(connection, [scope for scope in unread if scope.experiment.experiment_id in read])
    return added


def _add_cells(
    connection: Connection, read: Sequence[ReadOutcomes], *, settings: DayEngineSettings
) -> int:
    with (
        read_apart(connection.engine, open_lake()) as log,
        open_day_engine(_limited(connection, settings), lake=log.lake) as engine,
    ):
        compute_cells(engine, log, connection, read)
        register_experiment_ids(engine, [scope.experiment for scope in read])
        for table in ("conversions", "amounts"):
            _add_rows(engine, connection, table)
        return _add(engine, connection, "cells", copy_cells)


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
