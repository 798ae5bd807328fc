"""A rebuild: everything derived, computed anew from the log beside what is served."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from orchestration.pipeline.batch import Patience, work_apart
from orchestration.pipeline.drafts import Drafted, draft_bound, draft_waited_out
from storage.log.lake import Lake, open_lake
from storage.log.reader import open_log
from storage.pipeline.engines.day_engines import day_engine_settings
from storage.pipeline.evidence_rows import compute_evidence_rows
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.upkeep.days_apart import (
    Beginning,
    await_outcomes,
    begin_days,
    cells_unlike_served,
    leave_out,
    read_what_is_served,
    rows_unlike_served,
    verdicts_unlike_served,
)
from storage.verdicts.publication import stage_evidence
from storage.verdicts.set_aside import bound_experiments, experiments_to_compute

# Whole days are read at once: only the server's own limit of time holds.
PATIENCE = Patience(together=None, alone=0.0, retry_all=True)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What a rebuild tells otherwise than the served tables.

    Attributes:
        experiments: How many read the days.
        gone: Those that are left out, because events that they read then were dropped.
        cells: The cells of the days that only one side holds, in words.
        rows: How many rows behind these cells differ, by table and experiment, in words.
        verdicts: The experiments whose contract or evidence differs in a byte.
    """

    experiments: int
    gone: Sequence[str]
    cells: list[str]
    rows: list[str]
    verdicts: list[str]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.cells and not self.rows and not self.verdicts


def rebuild(separate: Connection, *, as_of: datetime, lake: Lake | None = None) -> list[Drafted]:
    """Computes evidence from the log in one go, by the engine of the settings, and stages it.

    Args:
        separate: A separate reading of the store: its derived tables are empty and its own.
        as_of: How far the log is read.
        lake: Of the sealed log; by default that of the settings.

    Returns:
        The drafts of all experiments that the reading does not hold for decided.
    """
    settings = day_engine_settings()
    with open_log(separate, lake or open_lake()) as log:

        def computed(only: Sequence[str]) -> int:
            return compute_evidence_rows(log, as_of=as_of, only=only, settings=settings)

        ids = _computed(separate, bound_experiments(separate), computed)
    return _drafted(separate, ids, as_of=as_of)


def _computed(
    separate: Connection, ids: Sequence[str], work: Callable[[Sequence[str]], object]
) -> list[str]:
    """Does a step for each experiment whose data lets it, and returns these."""
    _, broken = work_apart(separate, ids, work, patience=PATIENCE, limit=len(ids) + 1)
    return [experiment_id for experiment_id in ids if experiment_id not in broken]


def _drafted(separate: Connection, ids: Sequence[str], *, as_of: datetime) -> list[Drafted]:
    def bound(only: Sequence[str]) -> list[Drafted]:
        return draft_bound(separate, only=only)

    parts, _ = work_apart(separate, ids, bound, patience=PATIENCE, limit=len(ids) + 1)
    drafted = [one for part in parts for one in part]
    drafted += draft_waited_out(separate, as_of=as_of)
    stage_evidence(separate, [one.draft for one in drafted])
    return sorted(drafted, key=lambda one: one.draft.experiment_id)


def rebuild_days(separate: Connection, first: date, last: date, *, as_of: datetime) -> Beginning:
    """Walks over some days alone, from where the served tables stood when they began.

    The same steps as ever, on the log of these days; of later ones the outcomes alone are read
    that the days' units still waited for.

    Args:
        separate: A separate reading of the store.
        first: The first day of exposure, in UTC.
        last: The last day, itself included.
        as_of: How far the log may be read.

    Returns:
        Where it began.
    """
    begun = begin_days(separate, first, last)
    if begun.closed_at is not None:
        until, ids = min(as_of, begun.closed_at), experiments_to_compute(separate, "verdicts")
        computed = _computed(
            separate, ids, lambda only: extend_exposures(separate, as_of=until, only=only)
        )
        await_outcomes(separate, as_of=as_of)
        computed = _computed(separate, computed, lambda only: extend_cells(separate, only=only))
        leave_out(separate, set(ids) - set(computed))
    return begun


def compare_days(separate: Connection, first: date, last: date, *, as_of: datetime) -> Comparison:
    """Rebuilds some days, and compares what is served of them, and every verdict that may change.

    What is compared are the days' exposures, sightings, counts of units, outcomes and cells, row
    for row: they follow from the log of these days and from whoever was exposed before, which the
    checks of the earlier days are of. So once each day has been checked, all are, at the cost of
    one day each. What this cannot see is a row that changes after its day was checked: `audit` and
    `deploy-reward rebuild` read whole lives. Nor does it see outcomes that came after all windows
    of the day had closed; these enter no cell, and their number alone is told.

    The verdicts and evidence of what is open, of these days, or decided lately are computed anew
    from the served tables and compared to the byte.

    Args:
        separate: A separate reading of the store.
        first: The first day of exposure, in UTC.
        last: The last day, itself included.
        as_of: How far the log may be read.
    """
    begun = rebuild_days(separate, first, last, as_of=as_of)
    cells = [
        f"{row.experiment_id} {row.metric} {row.block.isoformat()} {row.stratum} {row.side}:"
        f" n1={row.n1} x1={row.x1} n0={row.n0} x0={row.x0}"
        for row in cells_unlike_served(separate)
    ]
    rows = [
        f"{row.experiment_id} {row.name}: {row.missing} missing, {row.surplus} surplus,"
        f" {row.other} other"
        for row in rows_unlike_served(separate)
    ]
    read_what_is_served(separate)
    _drafted(separate, experiments_to_compute(separate, "verdicts"), as_of=as_of)
    return Comparison(
        experiments=begun.experiments,
        gone=begun.gone,
        cells=cells,
        rows=rows,
        verdicts=verdicts_unlike_served(separate),
    )
