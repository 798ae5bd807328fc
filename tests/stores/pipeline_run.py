"""The pipeline's steps in the test's own process, as a run of the fast schedule takes them."""

from collections.abc import Callable, Sequence

from sqlalchemy import Engine

from orchestration.pipeline.batch import FAST
from orchestration.pipeline.steps import close_cells, expose, publish, stage_due
from storage.schema.clock import claim_derived_tables
from storage.upkeep.gauges import PIPELINE, note_step

_STEPS: Sequence[Callable[..., object]] = (expose, close_cells, stage_due, publish)


def run_pipeline(engine: Engine) -> None:
    """Takes each step once, in a transaction of its own that is the only writer."""
    for stage, step in zip(PIPELINE, _STEPS, strict=True):
        with engine.begin() as connection:
            claim_derived_tables(connection)
            step(connection, patience=FAST)
            note_step(connection, stage=stage, seconds=0.0)
