"""The pipeline's steps in the test's own process, as a run of the fast schedule takes them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, Engine

from orchestration.pipeline.batch import FAST
from orchestration.pipeline.steps import (
    advance_places,
    close_cells,
    expose,
    freeze_bound,
    note_seen,
    publish,
    stage_due,
)
from storage.experiments.freezing import experiments_to_freeze, freeze
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.clock import claim_derived_tables, closed_instant, store_time
from storage.upkeep.gauges import PIPELINE, note_step

Step = Callable[[Connection], object]


def freeze_registered(connection: Connection) -> None:
    """Freezes the policies of bound experiments, as a run of the pipeline would by now."""
    for row in experiments_to_freeze(connection, as_of=store_time(connection)):
        freeze(connection, row.experiment_id)


def run_pipeline(engine: Engine, *, as_of: datetime | None = None) -> None:
    """Takes each step once, in a transaction of its own that is the only writer.

    Args:
        as_of: How far the log is read; None for now, as a run of the fast schedule does.
    """
    steps: Sequence[Step] = (
        # Registrations are of now, whenever their events occurred.
        closed_instant,
        lambda connection: extend_exposures(connection, as_of=as_of),
        extend_cells,
        lambda connection: stage_due(connection, as_of=as_of),
        publish,
    )
    if as_of is None:
        later = (expose, close_cells, stage_due, publish)
        steps = [note_seen, *(partial(step, patience=FAST) for step in later)]
    for stage, step in zip(PIPELINE, steps, strict=True):
        with engine.begin() as connection:
            claim_derived_tables(connection)
            result = step(connection)
            note_step(connection, stage=stage, seconds=0.0)
        if isinstance(result, datetime):
            freeze_bound(engine.begin, as_of=result)
    advance_places(engine.begin)
