"""The pipeline's steps in the test's own process, as a run of the fast schedule takes them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, Engine

from orchestration.pipeline.batch import FAST
from orchestration.pipeline.steps import advance_places, close_cells, expose, publish, stage_due
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.clock import claim_derived_tables
from storage.upkeep.gauges import PIPELINE, note_step

Step = Callable[[Connection], object]


def run_pipeline(engine: Engine, *, as_of: datetime | None = None) -> None:
    """Takes each step once, in a transaction of its own that is the only writer.

    Args:
        as_of: How far the log is read; None for now, as a run of the fast schedule does.
    """
    steps: Sequence[Step] = (
        lambda connection: extend_exposures(connection, as_of=as_of),
        extend_cells,
        lambda connection: stage_due(connection, as_of=as_of),
        publish,
    )
    if as_of is None:
        steps = [partial(step, patience=FAST) for step in (expose, close_cells, stage_due, publish)]
    for stage, step in zip(PIPELINE, steps, strict=True):
        with engine.begin() as connection:
            claim_derived_tables(connection)
            step(connection)
            note_step(connection, stage=stage, seconds=0.0)
    advance_places(engine.begin)
