"""The day check: whether some days, computed anew from the log, are as they are served."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from orchestration.pipeline.batch import work_apart
from orchestration.pipeline.follow_up import differing_follow_ups
from orchestration.pipeline.recompute import PATIENCE, stage_drafts
from storage.lake.day_engines import DayEngineSettings, day_engine_settings
from storage.lake.lake import open_lake
from storage.lake.reader import open_log
from storage.pipeline.comparison import (
    Days,
    Differences,
    DifferingCount,
    DifferingRow,
    Reach,
    compare,
    reaches_on_days,
)
from storage.pipeline.experiments import PipelineExperiment, open_experiments
from storage.pipeline.moments import moment_of
from storage.pipeline.recompute import RowSelection, SelectedRows, recompute
from storage.pipeline.steps import AHEAD
from storage.upkeep.day_check import differing_verdicts, experiments_of_days, read_served_tables
from storage.upkeep.gone_events import days_dropped
from storage.verdicts.set_aside import experiments_to_compute


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between the served tables and a recomputation of some days.

    Attributes:
        experiments: How many experiments were compared.
        left: How many open experiments are left for another day.
        gone: The experiments that are left out, since events which they read were dropped.
        not_computed: The experiments that are left out, since they cannot be computed.
        counts: How many rows differ, by table and experiment.
        rows: The first of them.
        verdicts: The experiments whose contract or evidence differs in a byte, or the effect that
            was measured after the decision.
    """

    experiments: int
    left: int
    gone: Sequence[str]
    not_computed: Sequence[str]
    counts: Sequence[DifferingCount]
    rows: Sequence[DifferingRow]
    verdicts: Sequence[str]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.counts and not self.verdicts


def compare_days(
    separate: Connection,
    first: date,
    last: date,
    *,
    as_of: datetime,
    settings: DayEngineSettings | None = None,
) -> Comparison:
    """Computes experiments that read some days from the log, and compares the days' rows.

    Experiments are computed from their first event on, so that a day costs as much as the lives of
    the experiments that are checked. Those are all that are decided by now, and of the open ones as
    many as `AFFORDED` says: the others come on other days, and each when it is decided. Whoever was
    decided on the days is compared from its first block on. It does not see a row of another day
    that changes after its check; `audit` and `deploy-reward rebuild` do.

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
    chosen = experiments_of_days(separate, days)
    gone = sorted(days_dropped(separate).keys() & set(chosen.checked))
    ids = [experiment_id for experiment_id in chosen.checked if experiment_id not in gone]
    with open_log(separate, open_lake()) as log:

        def compared(only: Sequence[str]) -> Differences:
            experiments = open_experiments(separate, only=only)
            reaches = reaches_on_days(separate, experiments, days, decided=chosen.decided)
            recompute(
                log,
                separate,
                experiments,
                as_of=min(as_of, _closed_by(reaches)),
                settings=settings,
                wanted=_rows_of(reaches),
            )
            return compare(separate, reaches)

        parts, broken = work_apart(separate, ids, compared, patience=PATIENCE, limit=len(ids) + 1)
    computed = [experiment_id for experiment_id in ids if experiment_id not in broken]
    read_served_tables(separate, checked=computed)
    stage_drafts(separate, experiments_to_compute(separate, "verdicts"), as_of=as_of)
    return Comparison(
        experiments=len(computed),
        left=chosen.left,
        gone=gone,
        not_computed=sorted(broken),
        counts=[count for part in parts for count in part.counts],
        rows=[row for part in parts for row in part.rows],
        verdicts=sorted(
            {*differing_verdicts(separate), *differing_follow_ups(separate, only=computed)}
        ),
    )


def _closed_by(reaches: Sequence[Reach]) -> datetime:
    """Returns when all that is compared has closed."""
    return max(
        moment_of(max(reach.to_block, reach.read_to) + reach.experiment.grace) for reach in reaches
    )


def _rows_of(reaches: Sequence[Reach]) -> SelectedRows:
    """Asks for the rows of the days alone: no row comes earlier than a clock may run ahead."""
    begins = {reach.experiment.experiment_id: reach.from_block for reach in reaches}

    def wanted(experiment: PipelineExperiment) -> RowSelection:
        from_block = begins[experiment.experiment_id]
        return RowSelection() if from_block is None else RowSelection(since=from_block - AHEAD)

    return wanted
