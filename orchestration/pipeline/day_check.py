"""The day check: whether days, or whole lives, computed anew from the log, are as served."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from sqlalchemy import Connection

from orchestration.pipeline.batch import work_apart
from orchestration.pipeline.follow_up import differing_follow_ups
from orchestration.pipeline.recompute import PATIENCE, stage_drafts
from storage.lake.day_engines import DayEngineSettings, day_engine_settings
from storage.lake.lake import Lake, store_lake
from storage.lake.reader import open_log
from storage.pipeline.comparison import (
    Differences,
    DifferingCount,
    DifferingRow,
    Reach,
    compare,
    over_when_first_read,
    reaches_on_days,
)
from storage.pipeline.experiments import PipelineExperiment, open_experiments
from storage.pipeline.moments import Days, microseconds, moment_of
from storage.pipeline.recompute import RowSelection, SelectedRows, recompute
from storage.pipeline.steps import AHEAD
from storage.upkeep.day_check import differing_verdicts, experiments_of_days, read_served_tables
from storage.upkeep.gone_events import days_dropped
from storage.upkeep.rebuild import keep_whole_lives
from storage.verdicts.set_aside import bound_experiments, error_line, experiments_to_compute


@dataclass(frozen=True, kw_only=True)
class ComparedDays:
    """The rows of some days that differed, of some experiments that read them."""

    days: Days
    experiments: Sequence[str]
    differences: Differences


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between the served tables and a recomputation of some days.

    Attributes:
        verdicts: The experiments whose contract or evidence differs in a byte from those that the
            served rows give, or the effect that was measured after the decision.
    """

    days: Sequence[ComparedDays]
    decided: Mapping[str, date]
    gone: Sequence[str]
    not_computed: Mapping[str, str]
    verdicts: Sequence[str]

    def on(self, day: date) -> "Comparison":
        """Returns the part of a day: a decided verdict is of the day of its decision.

        The days of experiments that were not computed are unknown.
        """
        days = [part for part in self.days if part.days.first == day]
        read = {experiment_id for part in days for experiment_id in part.experiments}
        verdicts = [
            each for each in self.verdicts if each in read and self.decided.get(each, day) == day
        ]
        return replace(self, days=days, verdicts=verdicts)

    @property
    def experiments(self) -> int:
        """How many experiments were compared."""
        return len({experiment_id for part in self.days for experiment_id in part.experiments})

    @property
    def counts(self) -> list[DifferingCount]:
        """How many rows differed, by table and experiment."""
        return [count for part in self.days for count in part.differences.counts]

    @property
    def rows(self) -> list[DifferingRow]:
        """The first of them."""
        return [row for part in self.days for row in part.differences.rows]

    @property
    def equal(self) -> bool:
        """Whether nothing differed."""
        return not self.counts and not self.verdicts


def compare_days(
    separate: Connection,
    first: date,
    last: date,
    *,
    as_of: datetime,
    settings: DayEngineSettings | None = None,
    swap: bool = False,
) -> Comparison:
    """Computes the experiments that read some days from the log, and compares the days' rows.

    Experiments are computed from their first event on, so that a day costs as much as the lives of
    the experiments that read it. Whoever was decided on the days is compared from its first block
    on. It does not see a row of another day that changes after its check; `audit` and
    `deploy-reward rebuild` do. Then the verdicts and evidence of these experiments are computed
    from the served rows, and compared to the byte.

    Args:
        first: The first day of exposure, in UTC.
        settings: Which engine computes; None for that of the environment.
    """
    days, settings = Days(first=first, last=last), settings or day_engine_settings()
    decided = experiments_of_days(separate, days)
    gone = sorted(days_dropped(separate).keys() & decided.keys())
    ids = [experiment_id for experiment_id in decided if experiment_id not in gone]
    comparison = _compare(
        separate,
        ids,
        [Days(first=day, last=day) for day in days.each],
        read=lambda only: open_experiments(separate, only=only),
        decided=decided,
        as_of=as_of,
        settings=settings,
        lake=store_lake(separate.engine),
        swap=swap,
    )
    return replace(comparison, gone=gone)


# Before and after all that an experiment ever reads.
_EVER = Days(first=date(1970, 1, 1), last=date(9000, 1, 1))


def swap_whole_lives(separate: Connection, *, as_of: datetime, lake: Lake) -> Comparison:
    """Computes all experiments from the log, and serves all of their rows as computed.

    Where it is not known how far an experiment was read, that is up to `as_of`.
    """

    def read(only: Sequence[str]) -> list[PipelineExperiment]:
        experiments = open_experiments(separate, only=only)
        keep_whole_lives(separate, experiments, as_of=microseconds(as_of))
        return experiments

    return _compare(
        separate,
        bound_experiments(separate),
        [_EVER],
        read=read,
        decided={},
        as_of=as_of,
        settings=day_engine_settings(),
        lake=lake,
        swap=True,
    )


def _compare(
    separate: Connection,
    ids: Sequence[str],
    parts: Sequence[Days],
    *,
    read: Callable[[Sequence[str]], list[PipelineExperiment]],
    decided: Mapping[str, date | None],
    as_of: datetime,
    settings: DayEngineSettings,
    lake: Lake,
    swap: bool,
) -> Comparison:
    """Computes experiments from the log, and compares their rows of some days, part by part."""
    days = Days(first=parts[0].first, last=parts[-1].last)
    with open_log(separate, lake) as log:

        def compared(only: Sequence[str]) -> list[ComparedDays]:
            experiments = read(only)
            over = over_when_first_read(separate, only)
            reaches = _reaches(separate, experiments, days, decided)
            closed_by = max(max(at.to_block, at.read_to) + at.experiment.grace for at in reaches)
            recompute(
                log,
                separate,
                experiments,
                as_of=min(as_of, moment_of(closed_by)),
                settings=settings,
                wanted=_rows_of(reaches, over),
                reaches=reaches,
            )
            return [
                ComparedDays(
                    days=part,
                    experiments=[reach.experiment.experiment_id for reach in reaches],
                    differences=compare(separate, reaches, swap=swap),
                )
                for part in parts
                if (reaches := _reaches(separate, experiments, part, decided))
            ]

        done, broken = work_apart(separate, ids, compared, patience=PATIENCE, limit=len(ids) + 1)
    computed = [experiment_id for experiment_id in ids if experiment_id not in broken]
    read_served_tables(separate)
    drafted = [each for each in experiments_to_compute(separate, "verdicts") if each in computed]
    stage_drafts(separate, drafted, as_of=as_of)
    differing = {each.experiment_id for each in differing_verdicts(separate)}
    differing |= {*differing_follow_ups(separate, only=computed)}
    return Comparison(
        days=[part for parts_of_batch in done for part in parts_of_batch],
        decided={experiment_id: at for experiment_id, at in decided.items() if at is not None},
        gone=(),
        not_computed={name: error_line(error) for name, error in sorted(broken.items())},
        verdicts=sorted(differing.intersection(computed)),
    )


def _reaches(
    separate: Connection,
    experiments: Sequence[PipelineExperiment],
    days: Days,
    decided: Mapping[str, date | None],
) -> list[Reach]:
    lately = [each for each, at in decided.items() if at and days.first <= at <= days.last]
    return reaches_on_days(separate, experiments, days, decided=lately)


def _rows_of(reaches: Sequence[Reach], over: Collection[str]) -> SelectedRows:
    """Asks for the rows of the days alone: no row comes earlier than a clock may run ahead."""
    begins = {reach.experiment.experiment_id: reach.from_block for reach in reaches}

    def wanted(experiment: PipelineExperiment) -> RowSelection:
        from_block = begins[experiment.experiment_id]
        if from_block is None or experiment.experiment_id in over:
            return RowSelection(evidence_only=True)
        return RowSelection(since=from_block - AHEAD, evidence_only=True)

    return wanted
