"""The day check: whether the rows of some days, computed anew from the log, are as served."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from sqlalchemy import Connection

from orchestration.pipeline.batch import work_apart
from orchestration.pipeline.follow_up import draft_follow_ups
from orchestration.pipeline.recompute import PATIENCE, stage_drafts
from storage.lake.day_engines import DayEngineSettings, day_engine_settings
from storage.lake.lake import Lake, store_lake
from storage.lake.reader import open_log
from storage.pipeline.comparison import ComparedLife, DifferingHour, compare, lives_on_days, swap_in
from storage.pipeline.experiments import PipelineExperiment, open_experiments
from storage.pipeline.moments import Days, microseconds
from storage.pipeline.recompute import recomputed
from storage.upkeep.day_check import (
    differing_verdicts,
    experiments_of_days,
    read_follow_ups,
    read_served_tables,
)
from storage.upkeep.gone_events import days_dropped
from storage.upkeep.rebuild import keep_whole_lives
from storage.verdicts.set_aside import bound_experiments, error_line, experiments_to_compute


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between the served tables and a recomputation of experiments.

    Attributes:
        gone: Experiments whose events were dropped.
        verdicts: The experiments whose contract or evidence differs in a byte from those that the
            served rows give, or the effect that was measured after the decision.
    """

    lives: Sequence[ComparedLife]
    hours: Sequence[DifferingHour]
    decided: Mapping[str, date]
    gone: Sequence[str]
    not_computed: Mapping[str, str]
    verdicts: Sequence[str]

    def on(self, day: date) -> "Comparison":
        """Returns the part of a day: of verdicts decided on it, all that they rest on.

        The days of experiments that were not computed are unknown.
        """
        days = Days(first=day, last=day)
        lives = [life for life in self.lives if life.is_of(days)]
        read = {life.experiment.experiment_id for life in lives}
        return replace(
            self,
            lives=lives,
            hours=[
                hour
                for hour in self.hours
                if hour.experiment_id in read
                and (hour.is_of(days) or self.decided.get(hour.experiment_id) == day)
            ],
            verdicts=[
                each
                for each in self.verdicts
                if each in read and self.decided.get(each, day) == day
            ],
        )

    @property
    def equal(self) -> bool:
        """Whether nothing differed."""
        return not self.hours and not self.verdicts


def compare_days(
    separate: Connection,
    first: date,
    last: date,
    *,
    as_of: datetime,
    settings: DayEngineSettings | None = None,
    swap: bool = False,
) -> Comparison:
    """Computes the experiments that read some days from the log, and compares the days' hours.

    An experiment is computed whole, as far as it was read, so that a day costs as much as the lives
    of the experiments that read it; where an hour of the days differs, it is swapped in whole. An
    hour of another day that changes after its check is not seen; `audit` and `deploy-reward
    rebuild` see it. Then the verdicts and evidence of these experiments are computed from the
    served rows, and compared to the byte.

    Args:
        first: The first day, in UTC.
        settings: Which engine computes; None for that of the environment.
    """
    days = Days(first=first, last=last)
    decided = experiments_of_days(separate, days)
    gone = sorted(days_dropped(separate).keys() & decided.keys())
    comparison = _compare(
        separate,
        [experiment_id for experiment_id in decided if experiment_id not in gone],
        days,
        read=lambda only: open_experiments(separate, only=only),
        decided={each: at for each, at in decided.items() if at is not None},
        as_of=as_of,
        settings=settings or day_engine_settings(),
        lake=store_lake(separate.engine),
        swap=swap,
    )
    return replace(comparison, gone=gone)


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
        None,
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
    days: Days | None,
    *,
    read: Callable[[Sequence[str]], list[PipelineExperiment]],
    decided: Mapping[str, date],
    as_of: datetime,
    settings: DayEngineSettings,
    lake: Lake,
    swap: bool,
) -> Comparison:
    """Computes experiments from the log, and compares or swaps in their rows."""
    lately = [each for each, at in decided.items() if days and days.first <= at <= days.last]
    with open_log(separate, lake) as log:

        def compared(only: Sequence[str]) -> tuple[Sequence[ComparedLife], Sequence[DifferingHour]]:
            experiments = read(only)
            lives = lives_on_days(separate, experiments, days, decided=lately)
            if not lives:
                return (), ()
            read_to = min(microseconds(as_of), max(life.received_to for life in lives))
            with recomputed(log, experiments, as_of=read_to, settings=settings) as computed:
                hours = compare(computed.engine, separate, lives)
                if swap and hours:
                    unequal = {hour.experiment_id for hour in hours}
                    swap_in(computed.engine, separate, unequal)
            return lives, hours

        done, broken = work_apart(separate, ids, compared, patience=PATIENCE, limit=len(ids) + 1)
    computed = [experiment_id for experiment_id in ids if experiment_id not in broken]
    read_served_tables(separate)
    drafted = [each for each in experiments_to_compute(separate, "verdicts") if each in computed]
    stage_drafts(separate, drafted, as_of=as_of)
    differing = {each.experiment_id for each in differing_verdicts(separate)}
    differing |= {*_differing_follow_ups(separate, only=computed)}
    return Comparison(
        lives=[life for lives, _ in done for life in lives],
        hours=[hour for _, hours in done for hour in hours],
        decided=decided,
        gone=(),
        not_computed={name: error_line(error) for name, error in sorted(broken.items())},
        verdicts=sorted(differing.intersection(computed)),
    )


def _differing_follow_ups(separate: Connection, *, only: Sequence[str] | None = None) -> list[str]:
    """Returns the experiments whose ended follow-up differs from that of a reading."""
    served = {ended.experiment_id: ended for ended in read_follow_ups(separate, only, ended=True)}
    drafts = draft_follow_ups(separate, list(served.values()))
    return [
        draft.experiment_id
        for draft in drafts
        if (draft.state, draft.effect)
        != (served[draft.experiment_id].state, served[draft.experiment_id].effect)
    ]
