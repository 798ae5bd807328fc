"""A full rebuild: everything derived is filled anew beside the served tables, then swapped in."""

from collections.abc import Callable

from sqlalchemy import Connection, Engine

from orchestration.pipeline.batch import REBUILD
from orchestration.pipeline.steps import close_cells, expose, publish, stage, stage_due
from storage.schema.clock import claim_derived_tables
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

# As `begin` is called with them, in this order.
PHASES = ("exposures", "session cells", "evidence", "what came meanwhile", "swap")


def rebuild_all(
    engine: Engine, *, begin: Callable[[str], None], waiting: Callable[[], None]
) -> list[Difference]:
    """Fills every derived table from raw events and swaps the result in, in one transaction.

    Ticks, readers and gates go on meanwhile on the served tables, which change in the last phase
    alone, at its commit. Whatever ticks have added since is added to the side tables too before
    that, so that nobody sees less afterwards than before. Open verdicts are published as in any
    tick; decided ones are compared, and never rewritten.

    Args:
        engine: Of the store.
        begin: Called with the name of each phase of `PHASES` when it begins.
        waiting: Called where another rebuild must end first.

    Returns:
        The decided verdicts that the log gives otherwise than they are served.

    Raises:
        EventsGone: Raw events that a verdict rests on are gone; nothing was changed.
    """
    with side_tables(engine, waiting=waiting) as side:
        with side.begin():
            require_raw_events(side)
            for phase, step in zip(PHASES, (expose, close_cells, stage), strict=False):
                begin(phase)
                step(side, patience=REBUILD)
        begin("what came meanwhile")
        with side.begin():
            index_side_tables(side)
        with side.begin():
            _catch_up(side)
        begin("swap")
        with side.begin():
            claim_derived_tables(side)
            # A day may have been dropped since, and the rows of its units deleted.
            require_raw_events(side)
            _catch_up(side)
            differences = decided_differences(side)
            swap_in(side)
            _publish(side)
        return differences


def _catch_up(side: Connection) -> None:
    """Adds to the side tables what the log received since they were filled."""
    expose(side, patience=REBUILD)
    close_cells(side, patience=REBUILD)
    stage_due(side, patience=REBUILD)


def _publish(connection: Connection) -> None:
    """Ends as every tick ends: what is staged now becomes what is served."""
    put_off_looks(connection)
    note_staged(connection)
    publish(connection)
