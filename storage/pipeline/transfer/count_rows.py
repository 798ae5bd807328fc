"""Count rows: strata, counts of units, cells and cursors, from an engine into derived tables."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection

from storage.pipeline.cursors import outcome_cursors
from storage.pipeline.engines.engine import DayEngine
from storage.pipeline.experiments import PipelineExperiment, ReadExperiment
from storage.pipeline.moments import moment_of
from storage.pipeline.sums import ArmSums
from storage.pipeline.transfer.copying import copy_rows
from storage.pipeline.transfer.unit_rows import copy_computed


def register_experiment_ids(engine: DayEngine, experiments: Iterable[PipelineExperiment]) -> None:
    """Registers `experiment_ids`: the store's id of each experiment that an engine numbers."""
    engine.register(
        "experiment_ids",
        {"number": "int", "experiment_id": "text"},
        ((experiment.number, experiment.experiment_id) for experiment in experiments),
    )


_CELLS = """
SELECT number, metric, block, stratum, n1, x1, n0, x0, is_mean, y1, hh1, hl1, ll1, y0, hh0, hl0,
    ll0
FROM new_cells
"""


def copy_cells(engine: DayEngine, connection: Connection, *, prefix: str = "") -> None:
    """Copies cells."""
    ids: dict[int, str] = {
        row[0]: row[1] for row in engine.rows("SELECT number, experiment_id FROM experiment_ids")
    }
    copy_rows(
        connection,
        f"{prefix}cells (experiment_id, metric, block, stratum, n1, x1, n0, x0, y1, yy1, y0, yy0)",
        (_cell((ids[number], *row)) for number, *row in engine.rows(_CELLS)),
    )


def copy_counts(engine: DayEngine, connection: Connection) -> None:
    """Copies strata, counts of units and cells.

    Args:
        engine: Which holds the relations of whole lives, and `experiment_ids`.
        connection: To a store in which the derived tables hold no row of these experiments.
    """
    copy_computed(engine, connection, "strata")
    copy_computed(engine, connection, "block_units")
    copy_cells(engine, connection)


def copy_cursors(connection: Connection, read: Sequence[ReadExperiment]) -> None:
    """Copies the cursors of all stages.

    Args:
        connection: To a store that holds none of these experiments.
        read: The experiments, and which blocks of each were read.
    """
    copy_rows(connection, "cursors (stage, experiment_id, at)", _cursors(read))


def _cell(row: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the columns of a stored cell, of its experiment's id and the text's columns.

    The doubles of a mean are made here: no engine rounds whole numbers of any size correctly.
    """
    experiment_id, metric, block, stratum, *counts = row
    sums: Sequence[float | None] = (None,) * 4
    if counts[4]:
        treatment, control = (ArmSums(*map(int, counts[at : at + 4])) for at in (5, 9))
        sums = (treatment.y, treatment.yy, control.y, control.yy)
    return (experiment_id, metric, moment_of(block), stratum, *map(int, counts[:4]), *sums)


def _cursors(read: Sequence[ReadExperiment]) -> Iterator[tuple[Any, ...]]:
    for scope in read:
        yield "exposures", scope.experiment.experiment_id, moment_of(scope.to_block)
        for stage, experiment_id, at in outcome_cursors(scope.experiment, to_block=scope.to_block):
            yield stage, experiment_id, moment_of(at)
