"""Derived rows: whole lives, computed, and every row of them copied into the store."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from storage.log.reader import SealedLog
from storage.pipeline.engines.day_engines import DayEngineSettings, open_day_engine
from storage.pipeline.experiments import open_experiments
from storage.pipeline.moments import microseconds
from storage.pipeline.transfer.count_rows import copy_counts, register_experiment_ids
from storage.pipeline.transfer.unit_rows import UNIT_TABLES, copy_units
from storage.pipeline.whole_lives import compute_whole_lives


def compute_derived_rows(
    log: SealedLog,
    connection: Connection,
    *,
    as_of: datetime,
    only: Sequence[str],
    settings: DayEngineSettings,
) -> int:
    """Computes whole lives, and stores every row of them.

    Args:
        log: The log.
        connection: To a store in which the derived tables hold no row of these experiments.
        as_of: How far the log is read.
        only: The experiments.
        settings: Which engine computes.

    Returns:
        How many events were read.

    Raises:
        UnreadablePolicyError: The policy of one of them is of another version, or broken.
        TooManyAssignmentsError: One of them has more assignments than can be numbered.
    """
    experiments = open_experiments(connection, only=only)
    with open_day_engine(settings, lake=log.lake) as engine:
        lives = compute_whole_lives(engine, log, experiments, as_of=microseconds(as_of))
        if lives.read:
            register_experiment_ids(engine, [scope.experiment for scope in lives.read])
            for table in UNIT_TABLES:
                copy_units(engine, connection, table)
            copy_counts(engine, connection, lives.read)
        return lives.events
