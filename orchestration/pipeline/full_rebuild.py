"""A full rebuild: whole lives are computed from the log, and the rows that differ swapped in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from orchestration.pipeline.day_check import swap_whole_lives
from orchestration.pipeline.steps import close_cells, expose, publish, stage
from orchestration.pipeline.whole_days import LakeDays
from storage.lake.lake import Lake, store_lake
from storage.schema.clock import claim_derived_tables, closed_instant
from storage.upkeep.check_results import note_rebuilt
from storage.upkeep.day_check import Difference, differing_verdicts
from storage.upkeep.gone_events import require_raw_events
from storage.upkeep.reading import rebuilding, separated
from storage.upkeep.rebuild import add_lost_evidence, add_lost_verdicts
from storage.views.published import read_set_aside

# A tick may have written a row that is swapped in: then all is computed once more.
_ATTEMPTS = 3
_CONFLICT = "40001"


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """The parts of the served tables that a rebuild left as they were."""

    differences: Sequence[Difference]
    left_out: Mapping[str, str]


def rebuild_all(
    engine: Engine, *, waiting: Callable[[], None], lake: Lake | None = None
) -> Rebuilt:
    """Computes all that is derived from raw events, and serves it, in a single transaction.

    Ticks, readers and gates keep using the served tables meanwhile; only rows that differ are
    written. A tick at the end adds later events. Open verdicts are published as in any
    tick; decided ones are compared, and never rewritten.

    Args:
        waiting: Called where another rebuild must end first.

    Returns:
        The decided verdicts that the log gives otherwise, and the experiments that were left out.

    Raises:
        EventsGone: Raw events that a verdict rests on are gone; nothing was changed.
    """
    with rebuilding(engine, waiting=waiting) as connection:
        rebuilt = _swapped(connection, lake or store_lake(engine), attempts=_ATTEMPTS)
        with connection.begin():
            claim_derived_tables(connection)
            unlike = [each for each in rebuilt.differences if not each.in_evidence_alone]
            unequal = {*rebuilt.left_out, *(each.experiment_id for each in unlike)}
            note_rebuilt(connection, unequal=unequal)
            add_lost_verdicts(connection)
            for step in (expose, close_cells):
                step(connection, LakeDays())
            stage(connection)
            publish(connection)
            aside = {each.experiment_id: each.sentence for each in read_set_aside(connection)}
        return Rebuilt(differences=rebuilt.differences, left_out={**rebuilt.left_out, **aside})


def _swapped(connection: Connection, lake: Lake, *, attempts: int) -> Rebuilt:
    """Swaps in the rows that differ, and compares the verdicts."""
    with connection.begin():
        as_of = closed_instant(connection)
    try:
        with separated(connection, commits=True):
            require_raw_events(connection)
            comparison = swap_whole_lives(connection, as_of=as_of, lake=lake)
            add_lost_evidence(connection)
            differing = set(comparison.verdicts)
            return Rebuilt(
                differences=[
                    each
                    for each in differing_verdicts(connection)
                    if each.decided and each.experiment_id in differing
                ],
                left_out={
                    name: f"Its units cannot be computed ({error}). What is served of it stays."
                    for name, error in comparison.not_computed.items()
                },
            )
    except OperationalError as error:
        if attempts == 1 or getattr(error.orig, "sqlstate", None) != _CONFLICT:
            raise
    return _swapped(connection, lake, attempts=attempts - 1)
