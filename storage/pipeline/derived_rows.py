"""Derived rows: whole lives, computed, and their rows put into the store.

All of them, or those that evidence is read from, or those of some units.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, text

from storage.log.lake import Lake
from storage.log.reader import SealedLog, read_apart
from storage.pipeline.engines.day_engines import DayEngineSettings, open_day_engine
from storage.pipeline.engines.engine import DayEngine
from storage.pipeline.experiments import (
    PipelineExperiment,
    UnreadablePolicyError,
    bound_experiment,
    open_experiments,
)
from storage.pipeline.moments import microseconds
from storage.pipeline.transfer.count_rows import (
    copy_counts,
    copy_cursors,
    register_experiment_ids,
)
from storage.pipeline.transfer.unit_rows import UNIT_TABLES, copy_computed
from storage.pipeline.whole_lives import WholeLives, compute_whole_lives
from storage.schema.clock import closed_instant


def compute_derived_rows(
    log: SealedLog,
    connection: Connection,
    store: Callable[[Connection, WholeLives], None],
    *,
    as_of: datetime,
    only: Sequence[str],
    settings: DayEngineSettings,
) -> None:
    """Computes whole lives, and stores rows of them.

    Args:
        connection: To a store in which the derived tables hold no row of these experiments.
        store: `store_all_rows` or `store_evidence_rows`.
        as_of: How far the log is read.
        only: The experiments.
        settings: Which engine computes.

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


def store_all_rows(connection: Connection, lives: WholeLives) -> None:
    """Stores every row of computed lives.

    Args:
        connection: To a store in which the derived tables hold no row of these experiments.
        lives: The computed lives.
    """
    register_experiment_ids(lives.engine, [part.experiment for part in lives.read])
    for table in UNIT_TABLES:
        copy_computed(lives.engine, connection, table)
    copy_counts(lives.engine, connection)
    copy_cursors(connection, lives.read)


# Whether a unit that was sighted is exposed as well is all that evidence asks of an exposure.
_SIGHTED = "EXISTS (SELECT 1 FROM new_sightings AS s WHERE s.number = r.number AND s.unit = r.unit)"


def store_evidence_rows(connection: Connection, lives: WholeLives) -> None:
    """Stores the few rows that evidence is read from, and the cursors of all stages.

    Args:
        connection: A separate reading of the store, whose derived tables are empty and its own.
        lives: The computed lives.
    """
    copy_evidence_rows(connection, lives)
    copy_cursors(connection, lives.read)


def copy_evidence_rows(connection: Connection, lives: WholeLives) -> None:
    """Copies the few rows that evidence is read from; of the outcomes those that are late.

    Args:
        connection: To a store in which the derived tables hold no row of these experiments.
        lives: The computed lives.
    """
    register_experiment_ids(lives.engine, [part.experiment for part in lives.read])
    copy_computed(lives.engine, connection, "exposures", condition=_SIGHTED)
    copy_computed(lives.engine, connection, "sightings")
    copy_computed(lives.engine, connection, "conversions", condition="r.late = 1")
    copy_counts(lives.engine, connection)


_WHOLE_LIVES = text("""
SELECT w.experiment_id FROM whole_lives AS w JOIN experiments AS x USING (experiment_id)
WHERE x.project_id = :project_id
ORDER BY w.experiment_id
""")


def store_rows_of_units(
    connection: Connection,
    project_id: int,
    units: Collection[str],
    *,
    read: Collection[str],
    lake: Lake,
    settings: DayEngineSettings,
    is_passing: Callable[[Exception], bool],
) -> list[str]:
    """Stores the missing rows of some units in the experiments that have no row of each unit.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        units: Sessions, and users by their pseudonyms in hex.
        read: These, the users whom they name, and all sessions of each.
        lake: Of the sealed log.
        settings: Which engine computes.
        is_passing: Tells whether an error says nothing of the data: such a one is raised.

    Returns:
        The experiments that can no longer be computed, which are left out.
    """
    ids = list(connection.execute(_WHOLE_LIVES, {"project_id": project_id}).scalars())
    experiments = _readable_experiments(connection, ids)
    readable = {experiment.experiment_id for experiment in experiments}
    left_out = [experiment_id for experiment_id in ids if experiment_id not in readable]
    waiting = [experiments] if experiments and units else []
    while waiting:
        part = waiting.pop()
        try:
            with connection.begin_nested():
                _store_rows(connection, part, units, read=read, lake=lake, settings=settings)
        except Exception as error:
            if is_passing(error):
                raise
            # The data of one of them breaks it: it is left out, and stops no other.
            half = len(part) // 2
            waiting += [part[:half], part[half:]] if half else []
            left_out += [] if half else [part[0].experiment_id]
    return sorted(left_out)


def _store_rows(
    connection: Connection,
    experiments: Sequence[PipelineExperiment],
    units: Collection[str],
    *,
    read: Collection[str],
    lake: Lake,
    settings: DayEngineSettings,
) -> None:
    as_of = microseconds(closed_instant(connection))
    numbered = [replace(one, number=number) for number, one in enumerate(experiments)]
    with (
        read_apart(connection.engine, lake) as log,
        open_day_engine(settings, lake=lake) as engine,
    ):
        compute_whole_lives(engine, log, numbered, as_of=as_of, units=frozenset(read))
        register_experiment_ids(engine, numbered)
        engine.register("stored_units", {"unit": "text"}, ((unit,) for unit in units))
        for table in UNIT_TABLES:
            _add_missing(engine, connection, table)


def _add_missing(engine: DayEngine, connection: Connection, table: str) -> None:
    connection.execute(text(f"CREATE TEMP TABLE missing_{table} (LIKE {table}) ON COMMIT DROP"))
    copy_computed(
        engine,
        connection,
        table,
        prefix="missing_",
        condition="r.unit IN (SELECT unit FROM stored_units)",
    )
    connection.execute(
        text(f"INSERT INTO {table} SELECT * FROM missing_{table} ON CONFLICT DO NOTHING")
    )
    connection.execute(text(f"DROP TABLE missing_{table}"))


def _readable_experiments(connection: Connection, ids: Sequence[str]) -> list[PipelineExperiment]:
    """Returns experiments; one whose policy is broken is left out."""
    experiments: list[PipelineExperiment] = []
    for experiment_id in ids:
        with suppress(UnreadablePolicyError):
            experiments.append(bound_experiment(connection, experiment_id))
    return experiments
