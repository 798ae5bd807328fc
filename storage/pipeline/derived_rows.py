"""Derived rows: whole lives, computed, and their rows put into the store: all, or evidence's."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from storage.log.reader import SealedLog
from storage.pipeline.engines.day_engines import DayEngineSettings, open_day_engine
from storage.pipeline.experiments import open_experiments
from storage.pipeline.moments import microseconds, moment_of
from storage.pipeline.steps import ARMS, SIGHTING_KINDS
from storage.pipeline.transfer.copying import copy_rows
from storage.pipeline.transfer.count_rows import (
    copy_counts,
    register_experiment_ids,
    rows_by_experiment,
)
from storage.pipeline.transfer.unit_rows import UNIT_TABLES, copy_units
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
        copy_units(lives.engine, connection, table)
    copy_counts(lives.engine, connection, lives.read)


# Of the exposures those alone of units that were sighted: whether such a unit is exposed as well is
# all that evidence asks of one. Of the outcomes those that are late.
_EXPOSURES = """
SELECT x.number, x.unit, x.exposed_at, x.block, x.arm, x.stratum, x.commit_sha
FROM new_exposures AS x
WHERE EXISTS (
    SELECT 1 FROM new_sightings AS s WHERE s.number = x.number AND s.unit = x.unit
)
"""
_SIGHTINGS = "SELECT number, kind, unit, sighted_at, block, arm, stratum FROM new_sightings"
_LATE = """
SELECT number, metric, unit, received, block, arm, stratum FROM new_conversions WHERE late = 1
"""


def store_evidence_rows(connection: Connection, lives: WholeLives) -> None:
    """Stores the few rows that evidence is read from.

    Args:
        connection: A separate reading of the store, whose derived tables are empty and its own.
        lives: The computed lives.
    """
    engine = lives.engine
    register_experiment_ids(engine, [part.experiment for part in lives.read])
    copies: dict[str, Iterable[tuple[Any, ...]]] = {
        "exposures (experiment_id, unit, exposed_at, block, arm, stratum, commit_sha)": (
            (own, unit, moment_of(at), moment_of(block), ARMS[arm], *others)
            for own, unit, at, block, arm, *others in rows_by_experiment(engine, _EXPOSURES)
        ),
        "sightings (experiment_id, kind, unit, at, block, arm, stratum)": (
            (own, SIGHTING_KINDS[kind], unit, moment_of(at), *_exposure(exposure))
            for own, kind, unit, at, *exposure in rows_by_experiment(engine, _SIGHTINGS)
        ),
        "conversions (experiment_id, metric, unit, received_at, late, block, arm, stratum)": (
            (own, metric, unit, moment_of(at), True, *_exposure(exposure))
            for own, metric, unit, at, *exposure in rows_by_experiment(engine, _LATE)
        ),
    }
    for target, rows in copies.items():
        copy_rows(connection, target, rows)
    copy_counts(engine, connection, lives.read)


def _exposure(members: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the block, arm and stratum of a unit's exposure as the store holds them, if any."""
    block, arm, stratum = members
    if block is None:
        return None, None, None
    return moment_of(block), ARMS[arm], stratum
