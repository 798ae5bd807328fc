"""Derived rows: whole lives, computed, and their rows put into the store: all, or evidence's."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection

from storage.log.reader import SealedLog
from storage.pipeline.engines.day_engines import DayEngineSettings, open_day_engine
from storage.pipeline.experiments import open_experiments
from storage.pipeline.moments import microseconds
from storage.pipeline.transfer.count_rows import copy_counts, register_experiment_ids
from storage.pipeline.transfer.unit_rows import UNIT_TABLES, copy_computed
from storage.pipeline.whole_lives import WholeLives, compute_whole_lives


def compute_derived_rows(
    log: SealedLog,
    connection: Connection,
    store: Callable[[Connection, WholeLives], None],
    *,
    as_of: datetime,
    only: Sequence[str],
    settings: DayEngineSettings,
) -> int:
    """Computes whole lives, and stores rows of them.

    Args:
        connection: To a store in which the derived tables hold no row of these experiments.
        store: `store_all_rows` or `store_evidence_rows`.
        as_of: How far the log is read.
        only: The experiments.
        settings: Which engine computes.

    Returns:
        How many events were read.

    Raises:
        UnreadablePolicyError: The policy of one of them is of another version, or broken.
        TooManyAssignmentsError: One of them has more assignments than can be numbered.
        EngineError: The engine cannot be used, or is away.
    """
    experiments = open_experiments(connection, only=only)
    with open_day_engine(settings, lake=log.lake) as engine:
        lives = compute_whole_lives(engine, log, experiments, as_of=microseconds(as_of))
        if lives.read:
            store(connection, lives)
        return lives.events


def store_all_rows(connection: Connection, lives: WholeLives) -> None:
    """Stores every row of computed lives.

    Args:
        connection: To a store in which the derived tables hold no row of these experiments.
        lives: The computed lives.
    """
    register_experiment_ids(lives.engine, [part.experiment for part in lives.read])
    for table in UNIT_TABLES:
        copy_computed(lives.engine, connection, table)
    copy_counts(lives.engine, connection, lives.read)


# Whether a unit that was sighted is exposed as well is all that evidence asks of an exposure.
_SIGHTED = "EXISTS (SELECT 1 FROM new_sightings AS s WHERE s.number = r.number AND s.unit = r.unit)"


def store_evidence_rows(connection: Connection, lives: WholeLives) -> None:
    """Stores the few rows that evidence is read from; of the outcomes those that are late.

    Args:
        connection: A separate reading of the store, whose derived tables are empty and its own.
        lives: The computed lives.
    """
    register_experiment_ids(lives.engine, [part.experiment for part in lives.read])
    copy_computed(lives.engine, connection, "exposures", condition=_SIGHTED)
    copy_computed(lives.engine, connection, "sightings")
    copy_computed(lives.engine, connection, "conversions", condition="r.late = 1")
    copy_counts(lives.engine, connection, lives.read)
