"""A full rebuild: everything derived is filled anew beside the served tables, then swapped in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from orchestration.pipeline.batch import REBUILD, compute
from orchestration.pipeline.steps import close_cells, expose, publish, stage, stage_due
from storage.lake.day_engines import day_engine_settings
from storage.lake.lake import Lake, open_lake
from storage.lake.reader import read_apart
from storage.pipeline.experiments import open_experiments
from storage.pipeline.recompute import every_row, recompute
from storage.schema.clock import claim_derived_tables, closed_instant
from storage.upkeep.check_results import note_rebuilt
from storage.upkeep.gone_events import require_raw_events
from storage.upkeep.side_tables import (
    Difference,
    decided_differences,
    index_side_tables,
    side_tables,
    swap_in,
)
from storage.verdicts.next_look import put_off_looks
from storage.verdicts.progress import note_staged
from storage.verdicts.set_aside import SetAside, experiments_to_compute, read_set_aside

# `begin` is called with each of them, in this order.
PHASES = ("units and cells", "evidence", "what came meanwhile", "swap")


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """The parts of the served tables that a rebuild left as they were.

    Attributes:
        differences: The decided verdicts that differ from those which the log gives now.
    """

    differences: Sequence[Difference]
    left_out: Sequence[SetAside]


def rebuild_all(
    engine: Engine,
    *,
    begin: Callable[[str], None],
    waiting: Callable[[], None],
    lake: Lake | None = None,
) -> Rebuilt:
    """Fills every derived table from raw events and swaps the result in, in a single transaction.

    Ticks, readers and gates go on meanwhile on the served tables, which change in the last phase
    alone, at its commit. Whatever ticks have added since is added to the side tables too before
    that, so that no reader sees less afterwards than before. Open verdicts are published as in any
    tick; decided ones are compared, and never rewritten.

    Args:
        begin: Called with the name of each phase of `PHASES` when it begins.
        waiting: Called where another rebuild must end first.

    Returns:
        The decided verdicts that the log gives otherwise, and the experiments that were left out.

    Raises:
        EventsGone: Raw events that a verdict rests on are gone; nothing was changed.
    """
    with side_tables(engine, waiting=waiting) as side:
        with side.begin():
            require_raw_events(side)
            begin("units and cells")
            _fill(side, lake or open_lake())
        begin("evidence")
        with side.begin():
            index_side_tables(side)
        with side.begin():
            stage(side, patience=REBUILD)
        begin("what came meanwhile")
        with side.begin():
            _catch_up(side)
        begin("swap")
        with side.begin():
            claim_derived_tables(side)
            # A day may have been dropped since, and the rows of its units deleted.
            require_raw_events(side)
            _catch_up(side)
            differences = decided_differences(side)
            left_out = read_set_aside(side)
            swap_in(side)
            unlike = [each for each in differences if not each.in_evidence_alone]
            note_rebuilt(side, unequal={each.experiment_id for each in (*unlike, *left_out)})
            # A rebuild ends as every tick ends.
            put_off_looks(side)
            note_staged(side)
            publish(side)
        return Rebuilt(differences=differences, left_out=left_out)


def _fill(side: Connection, lake: Lake) -> None:
    """Computes whole lives; an experiment that cannot be computed is set aside."""
    as_of, settings = closed_instant(side), day_engine_settings()
    with read_apart(side.engine, lake) as log:

        def computed(ids: Sequence[str]) -> None:
            experiments = open_experiments(side, only=ids)
            recompute(log, side, experiments, as_of=as_of, settings=settings, wanted=every_row)

        ids = experiments_to_compute(side, "exposures")
        compute(side, "exposures", computed, ids=ids, patience=REBUILD)


def _catch_up(side: Connection) -> None:
    """Adds the events to the side tables that came since they were filled."""
    expose(side, patience=REBUILD)
    close_cells(side, patience=REBUILD)
    stage_due(side, patience=REBUILD)
