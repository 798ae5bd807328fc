"""Day rebuild: evidence and single days computed from the log, beside the served tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from orchestration.pipeline.batch import Patience, work_apart
from orchestration.pipeline.drafts import Drafted, draft_bound, draft_waited_out
from orchestration.pipeline.follow_up import differing_follow_ups
from storage.log.lake import Lake, open_lake
from storage.log.reader import open_log
from storage.pipeline.days.comparison import (
    DaysCompared,
    DifferingCell,
    DifferingRows,
    compare_experiments,
)
from storage.pipeline.days.scope import Days, experiments_of_days
from storage.pipeline.derived_rows import compute_derived_rows, store_evidence_rows
from storage.pipeline.engines.day_engines import DayEngineSettings, day_engine_settings
from storage.upkeep.verdict_check import differing_verdicts, read_served_tables
from storage.verdicts.publication import stage_evidence
from storage.verdicts.set_aside import bound_experiments, experiments_to_compute

# Whole days are read at once: only the server's own limit of time holds.
PATIENCE = Patience(together=None, alone=0.0, retry_all=True)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between the served tables and a rebuild of some days.

    Attributes:
        experiments: How many experiments were compared.
        gone: The experiments that are left out, since events which they read were dropped.
        not_computed: The experiments that are left out, since they cannot be computed.
        cells: The cells of the days that only one side holds, as text.
        rows: How many rows behind these cells differ, by table and experiment, as text.
        verdicts: The experiments whose contract or evidence differs in a byte, or the effect that
            was measured after the decision.
    """

    experiments: int
    gone: Sequence[str]
    not_computed: Sequence[str]
    cells: list[str]
    rows: list[str]
    verdicts: list[str]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.cells and not self.rows and not self.verdicts


def rebuild(
    separate: Connection,
    *,
    as_of: datetime,
    lake: Lake | None = None,
    leave_out: Callable[[str, Exception], None] = lambda _id, _error: None,
) -> list[Drafted]:
    """Computes evidence from the log in one go, by the engine of the settings, and stages it.

    Args:
        separate: A separate reading of the store: its derived tables are empty and its own.
        as_of: How far the log is read.
        lake: Of the sealed log; by default that of the settings.
        leave_out: Called with each experiment that cannot be computed, and the error.

    Returns:
        The drafts of all experiments that the reading does not hold for decided.
    """
    settings = day_engine_settings()
    with open_log(separate, lake or open_lake()) as log:

        def computed(only: Sequence[str]) -> None:
            compute_derived_rows(
                log,
                log.connection,
                store_evidence_rows,
                as_of=as_of,
                only=only,
                settings=settings,
            )

        ids = bound_experiments(separate)
        _, broken = work_apart(separate, ids, computed, patience=PATIENCE, limit=len(ids) + 1)
    drafted, undrafted = _drafted(
        separate, [each for each in ids if each not in broken], as_of=as_of
    )
    for experiment_id, error in {**broken, **undrafted}.items():
        leave_out(experiment_id, error)
    return drafted


def _drafted(
    separate: Connection, ids: Sequence[str], *, as_of: datetime
) -> tuple[list[Drafted], dict[str, Exception]]:
    """Stages evidence, and returns the errors of experiments whose data allows none."""

    def bound(only: Sequence[str]) -> list[Drafted]:
        return draft_bound(separate, only=only)

    parts, broken = work_apart(separate, ids, bound, patience=PATIENCE, limit=len(ids) + 1)
    drafted = [draft for part in parts for draft in part]
    drafted += draft_waited_out(separate, as_of=as_of)
    stage_evidence(separate, [entry.draft for entry in drafted])
    return sorted(drafted, key=lambda entry: entry.draft.experiment_id), broken


def compare_days(
    separate: Connection,
    first: date,
    last: date,
    *,
    as_of: datetime,
    settings: DayEngineSettings | None = None,
) -> Comparison:
    """Computes some days from the log, and compares them with the served tables.

    It compares the days' exposures, sightings, counts of units, outcomes and cells, row for row.
    These follow from the log of the days and from the units exposed before, which the checks of
    the earlier days compare: once each day has been checked, all rows have been, at the cost of one
    day each. It does not see a row that changes after its day was checked; `audit` and
    `deploy-reward rebuild` read whole lives. Nor does it see outcomes that came after all windows
    of the day had closed: these enter no cell.

    The verdicts and evidence of experiments that are open, that read these days, or that were
    decided lately are computed from the served tables and compared to the byte.

    Args:
        separate: A separate reading of the store.
        first: The first day of exposure, in UTC.
        last: The last day, itself included.
        as_of: How far the log may be read.
        settings: Which engine computes; None for that of the environment.
    """
    days, settings = Days(first=first, last=last), settings or day_engine_settings()
    ids = experiments_of_days(separate, days)
    with open_log(separate, open_lake()) as log:

        def compared(only: Sequence[str]) -> DaysCompared:
            return compare_experiments(log, only, days, as_of=as_of, settings=settings)

        parts, broken = work_apart(separate, ids, compared, patience=PATIENCE, limit=len(ids) + 1)
    computed = [experiment_id for part in parts for experiment_id in part.experiments]
    read_served_tables(separate, checked=computed)
    _drafted(separate, experiments_to_compute(separate, "verdicts"), as_of=as_of)
    return Comparison(
        experiments=len(computed),
        gone=sorted(experiment_id for part in parts for experiment_id in part.gone),
        not_computed=sorted(broken),
        cells=[_cell(cell) for part in parts for cell in part.cells],
        rows=[_rows(row) for part in parts for row in part.rows],
        verdicts=sorted(
            {*differing_verdicts(separate), *differing_follow_ups(separate, only=computed)}
        ),
    )


def _cell(cell: DifferingCell) -> str:
    return (
        f"{cell.experiment_id} {cell.metric} {cell.block.isoformat()} {cell.stratum} {cell.side}:"
        f" n1={cell.n1} x1={cell.x1} n0={cell.n0} x0={cell.x0}"
    )


def _rows(row: DifferingRows) -> str:
    return (
        f"{row.experiment_id} {row.table}: {row.missing} missing, {row.surplus} surplus,"
        f" {row.changed} changed"
    )
