"""The recomputation: whole lives of experiments from the log, and where their rows go.

Their rows are copied into tables aside, to be read there, or are added to the rows that are stored.
Some experiments ask for all of their rows, others for a few.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from domain.policy import UnreadablePolicyError
from storage.lake.day_engines import DayEngineSettings, open_day_engine
from storage.lake.lake import Lake
from storage.lake.reader import SealedLog, read_apart
from storage.pipeline.cursors import outcome_cursors
from storage.pipeline.derived import COPIED_TABLES, UNIT_TABLES, Derived
from storage.pipeline.engines.copying import copy_into_store, copy_rows
from storage.pipeline.engines.day_engine import DayEngine
from storage.pipeline.experiments import PipelineExperiment, ReadExperiment, bound_experiment
from storage.pipeline.moments import EARLIEST, microseconds, moment_of
from storage.pipeline.sums import CELLS, COMPUTED_CELLS, stored_cell
from storage.pipeline.whole_lives import WholeLives, compute_whole_lives
from storage.postgres.samples import sample_grown
from storage.schema.annex_tables import metadata
from storage.schema.clock import closed_instant


@dataclass(frozen=True, kw_only=True)
class RowSelection:
    """The copied rows of an experiment, from `since` on, in microseconds since the epoch."""

    since: int = EARLIEST
    evidence_only: bool = False


SelectedRows = Callable[[PipelineExperiment], RowSelection]


def every_row(_: PipelineExperiment) -> RowSelection:
    """Asks for every row."""
    return RowSelection()


def evidence_rows(_: PipelineExperiment) -> RowSelection:
    """Asks for the few rows that evidence is read from."""
    return RowSelection(evidence_only=True)


@contextmanager
def recomputed(
    log: SealedLog,
    experiments: Sequence[PipelineExperiment],
    *,
    as_of: int,
    settings: DayEngineSettings,
    wanted: SelectedRows = every_row,
    units: Collection[str] | None = None,
) -> Generator[WholeLives]:
    """Yields whole lives, computed, for as long as their engine is open.

    Args:
        as_of: How far the log is read, in microseconds since the epoch.
        units: The sessions and users alone of which the log is read; None for all.

    Raises:
        TooManyAssignmentsError: An experiment has more assignments than can be numbered.
        EngineError: The engine cannot be used, or is away.
    """
    with open_day_engine(settings, lake=log.lake) as engine:
        lives = compute_whole_lives(
            engine, log, experiments, as_of=as_of, units=None if units is None else frozenset(units)
        )
        numbered = [(part.experiment, wanted(part.experiment)) for part in lives.read]
        engine.register(
            "experiment_ids",
            {"number": "int", "experiment_id": "text", "since": "bigint", "evidence_only": "int"},
            [
                (each.number, each.experiment_id, rows.since, int(rows.evidence_only))
                for each, rows in numbered
            ],
        )
        yield lives


# --- Aside ----------------------------------------------------------------------------------------


def recompute(
    log: SealedLog,
    connection: Connection,
    experiments: Sequence[PipelineExperiment],
    *,
    as_of: datetime,
    settings: DayEngineSettings,
    wanted: SelectedRows,
) -> None:
    """Computes whole lives, and copies their rows into the derived tables aside, with the cursors.

    Raises:
        TooManyAssignmentsError: An experiment has more assignments than can be numbered.
        EngineError: The engine cannot be used, or is away.
    """
    with recomputed(
        log, experiments, as_of=microseconds(as_of), settings=settings, wanted=wanted
    ) as lives:
        copy_aside(lives, connection)


def copy_aside(lives: WholeLives, connection: Connection) -> None:
    """Copies the wanted rows of whole lives, with the cursors; none where nothing was read."""
    if not lives.read:
        return
    for table in COPIED_TABLES:
        _copy(lives.engine, connection, table)
    _copy_cells(lives.engine, connection)
    copy_rows(connection, "cursors (stage, experiment_id, at)", cursors_of(lives.read))


def _copy(
    engine: DayEngine,
    connection: Connection,
    table: Derived,
    *,
    prefix: str = "",
    condition: str = "1 = 1",
) -> int:
    """Copies the wanted rows `r` of a table, and returns their number."""
    since = "1 = 1" if table.moment is None else f"r.{table.moment} >= x.since"
    source = (
        f"{table.step} AS r JOIN experiment_ids AS x ON x.number = r.number"
        f" WHERE {since} AND (x.evidence_only = 0 OR {table.evidence}) AND {condition}"
    )
    copied = copy_into_store(engine, connection, f"{prefix}{table.name}", table.table, source)
    sample_grown(connection, f"{prefix}{table.name}", copied)
    return copied


def _copy_cells(engine: DayEngine, connection: Connection, *, prefix: str = "") -> None:
    rows = engine.rows(
        f"SELECT x.experiment_id, {COMPUTED_CELLS} FROM new_cells AS r"
        " JOIN experiment_ids AS x ON x.number = r.number WHERE r.block >= x.since"
    )
    copy_rows(connection, f"{prefix}cells ({', '.join(CELLS)})", (stored_cell(row) for row in rows))


def cursors_of(read: Sequence[ReadExperiment]) -> Iterator[tuple[Any, ...]]:
    """Yields the cursors of experiments of which some blocks were read: stage, id and time."""
    for scope in read:
        yield "exposures", scope.experiment.experiment_id, moment_of(scope.to_block)
        for stage, experiment_id, at in outcome_cursors(scope.experiment, to_block=scope.to_block):
            yield stage, experiment_id, moment_of(at)


# --- Beside what is stored ------------------------------------------------------------------------

_COMPUTED = "computed_"


def add_to_stored(connection: Connection, lives: WholeLives) -> None:
    """As the derived tables' only writer, adds the wanted rows of whole lives to those stored."""
    for table in COPIED_TABLES:
        _add(connection, lives, table)
    with _laid_beside(connection, "cells", keep="ON CONFLICT DO NOTHING"):
        _copy_cells(lives.engine, connection, prefix=_COMPUTED)


def _add(
    connection: Connection, lives: WholeLives, table: Derived, *, condition: str = "1 = 1"
) -> None:
    with _laid_beside(connection, table.name, keep=table.keep):
        _copy(lives.engine, connection, table, prefix=_COMPUTED, condition=condition)


@contextmanager
def _laid_beside(connection: Connection, table: str, *, keep: str) -> Generator[None]:
    """Lays a table for computed rows beside a derived table, then inserts them into that."""
    computed = f"{_COMPUTED}{table}"
    connection.execute(
        text(f"CREATE TEMP TABLE {computed} (LIKE {table} INCLUDING DEFAULTS) ON COMMIT DROP")
    )
    yield
    keys = ", ".join(column.name for column in metadata.tables[table].primary_key)
    inserted = connection.execute(
        text(f"INSERT INTO {table} SELECT * FROM {computed} ORDER BY {keys} {keep}")
    )
    connection.execute(text(f"DROP TABLE {computed}"))
    sample_grown(connection, table, inserted.rowcount)


# --- Of some units --------------------------------------------------------------------------------

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
            # The data of an experiment breaks it: it is left out, and stops no other.
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
    numbered = [replace(each, number=number) for number, each in enumerate(experiments)]
    with (
        read_apart(connection.engine, lake) as log,
        recomputed(log, numbered, as_of=as_of, settings=settings, units=read) as lives,
    ):
        lives.engine.register("stored_units", {"unit": "text"}, ((unit,) for unit in units))
        for table in UNIT_TABLES:
            _add(connection, lives, table, condition="r.unit IN (SELECT unit FROM stored_units)")


def _readable_experiments(connection: Connection, ids: Sequence[str]) -> list[PipelineExperiment]:
    """Returns experiments, without those whose policy is broken."""
    experiments: list[PipelineExperiment] = []
    for experiment_id in ids:
        with suppress(UnreadablePolicyError):
            experiments.append(bound_experiment(connection, experiment_id))
    return experiments
