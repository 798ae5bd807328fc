"""The pipeline's steps in the test's own process, as a run of the fast schedule takes them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from places.queue import advance_places
from sqlalchemy import Connection, Engine, text

from domain.policy import Policy
from orchestration.pipeline.audit import frozen_again
from orchestration.pipeline.batch import FAST
from orchestration.pipeline.steps import (
    close_cells,
    expose,
    freeze_bound,
    note_seen,
    publish,
    stage_due,
)
from orchestration.pipeline.whole_days import LakeDays
from storage.experiments.freezing import freeze_whole
from storage.lake.day_engines import past_files
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.clock import claim_derived_tables, closed_instant, store_time
from storage.schema.past_log import PastFiles
from storage.upkeep.ticks import PIPELINE, note_step
from storage.verdicts.set_aside import experiments_to_freeze

Step = Callable[[Connection], object]


def freeze_registered(connection: Connection) -> None:
    """Freezes the policies of bound experiments, as a run of the pipeline would by now."""
    for row in experiments_to_freeze(connection, as_of=store_time(connection)):
        freeze_whole(connection, row.experiment_id)
        _require_kept(connection, row.experiment_id)


_FROZEN = text("SELECT policy IS NOT NULL FROM experiments WHERE experiment_id = :id")


def _require_kept(
    connection: Connection, experiment_id: str, files: PastFiles | None = None
) -> None:
    """Holds that a policy is frozen again to the byte, by its kept answers and by the log."""
    if connection.execute(_FROZEN, {"id": experiment_id}).scalar_one():
        stored, by_kept, by_log = frozen_again(connection, experiment_id, files=files)
        assert stored == by_kept
        frozen = Policy.of(stored)
        # Under load a reading may not be answered in time.
        unread = frozen.unread or any(each.is_default for each in by_log)
        assert tuple(by_log) == frozen.frozen_from or unread


def run_pipeline(engine: Engine, *, as_of: datetime | None = None) -> None:
    """Takes each step once, in a transaction of its own that is the only writer.

    Args:
        as_of: How far the log is read; None for now, as a run of the fast schedule does.
    """
    days = LakeDays()
    steps: Sequence[Step] = (
        # Registrations are of now, whenever their events occurred.
        closed_instant,
        lambda connection: extend_exposures(connection, as_of=as_of),
        extend_cells,
        lambda connection: stage_due(connection, as_of=as_of),
        publish,
    )
    if as_of is None:
        later = (partial(expose, days=days), partial(close_cells, days=days), stage_due, publish)
        steps = [note_seen, *(partial(step, patience=FAST) for step in later)]
    for stage, step in zip(PIPELINE, steps, strict=True):
        with engine.begin() as connection:
            claim_derived_tables(connection)
            result = step(connection)
            note_step(connection, stage=stage, seconds=0.0)
        if isinstance(result, datetime):
            with engine.connect() as connection:
                bound = experiments_to_freeze(connection, as_of=result)
            freeze_bound(engine.begin, days, as_of=result, patience=FAST)
            # By the other engine.
            with engine.connect() as connection, past_files(connection, always=True) as files:
                for row in bound:
                    _require_kept(connection, row.experiment_id, files)
    advance_places(engine.begin)
