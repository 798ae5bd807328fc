"""Scope of a day check: which experiments read some days, and how far each is read for them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import Connection, text

from storage.pipeline.cursors import read_cursors
from storage.pipeline.experiments import (
    PipelineExperiment,
    ReadExperiment,
    open_experiments,
)
from storage.pipeline.inputs import ReadOutcomes
from storage.pipeline.moments import block_of, microseconds, moment_of
from storage.pipeline.steps import IN_FLIGHT, LOOK_BACK
from storage.postgres.engine import SCHEMA


@dataclass(frozen=True, kw_only=True)
class Days:
    """Some days of exposure, in UTC, both ends included."""

    first: date
    last: date

    @property
    def from_block(self) -> int:
        """Their first moment, in microseconds since the epoch."""
        return _midnight(self.first)

    @property
    def to_block(self) -> int:
        """The first moment after them."""
        return _midnight(self.last + timedelta(days=1))


def _midnight(day: date) -> int:
    return microseconds(datetime.combine(day, time(), tzinfo=UTC))


_READ_DAYS = text(f"""
SELECT x.experiment_id
FROM {SCHEMA}.experiments AS x
JOIN {SCHEMA}.cursors AS c ON c.stage = 'exposures' AND c.experiment_id = x.experiment_id
WHERE x.bound_at IS NOT NULL AND x.starts_at < :to_block AND c.at > :from_block
  -- Its days were never added one after another, and their units are not stored.
  AND NOT EXISTS (SELECT FROM {SCHEMA}.whole_lives AS w WHERE w.experiment_id = x.experiment_id)
  -- An experiment that is set aside cannot be computed here either.
  AND NOT EXISTS (SELECT FROM {SCHEMA}.set_aside AS s WHERE s.experiment_id = x.experiment_id)
ORDER BY x.experiment_id
""")


def experiments_of_days(connection: Connection, days: Days) -> list[str]:
    """Returns the ids of the experiments that have read some of these days as they came."""
    blocks = {"from_block": moment_of(days.from_block), "to_block": moment_of(days.to_block)}
    return list(connection.execute(_READ_DAYS, blocks).scalars())


@dataclass(frozen=True, kw_only=True)
class CheckedExperiment:
    """An experiment on some days.

    Attributes:
        read: The blocks of exposure.
        outcomes: How far the outcomes of their units are read: until their windows have closed.
        is_first: Whether the days hold its first block.
        received_to: Served outcomes that were received later are not compared.
        cells_to: Of each metric, the first block whose cells are not compared.
    """

    read: ReadExperiment
    outcomes: ReadOutcomes
    is_first: bool
    received_to: int
    cells_to: Mapping[str, int]

    @property
    def experiment(self) -> PipelineExperiment:
        """The experiment."""
        return self.read.experiment


@dataclass(frozen=True, kw_only=True)
class DayScope:
    """The experiments of some days.

    Attributes:
        checked: Those that can be computed.
        gone: The ids of those that read events, for these days, which were dropped since.
    """

    checked: Sequence[CheckedExperiment]
    gone: Sequence[str]


def scope_of_days(
    connection: Connection, days: Days, *, only: Sequence[str], as_of: datetime
) -> DayScope:
    """Returns how far experiments are read for some days.

    Args:
        connection: A separate reading of the store.
        only: The experiments, of `experiments_of_days`.
        as_of: How far the log may be read.

    Raises:
        UnreadablePolicyError: The policy of one of them is of another version, or broken.
    """
    experiments = open_experiments(connection, only=only)
    gone = _without_events(connection, experiments, days)
    cursors: dict[str, dict[str, int]] = {}
    for (experiment_id, stage), at in read_cursors(connection, only, schema=f"{SCHEMA}.").items():
        cursors.setdefault(experiment_id, {})[stage] = at
    return DayScope(
        checked=[
            _checked(experiment, cursors[experiment.experiment_id], days, as_of=microseconds(as_of))
            for experiment in experiments
            if experiment.experiment_id not in gone
        ],
        gone=sorted(gone),
    )


def _checked(
    experiment: PipelineExperiment, cursors: Mapping[str, int], days: Days, *, as_of: int
) -> CheckedExperiment:
    is_first = experiment.starts_at >= days.from_block
    first = block_of(experiment.starts_at)
    to_block = min(days.to_block, cursors["exposures"])
    read_to = cursors.get("conversions", to_block)
    longest_open = max(metric.open_for for metric in experiment.metrics)
    outcomes_to = max(
        to_block, min(to_block + longest_open, read_to, block_of(as_of - experiment.grace))
    )
    from_block = first if is_first else days.from_block
    return CheckedExperiment(
        read=ReadExperiment(
            experiment=experiment,
            from_block=block_of(experiment.starts_at - IN_FLIGHT) if is_first else from_block,
            to_block=to_block,
        ),
        outcomes=ReadOutcomes(
            experiment=experiment,
            from_block=from_block,
            to_block=outcomes_to,
            closed_from={metric.name: from_block for metric in experiment.metrics},
            exposed_to=to_block,
        ),
        is_first=is_first,
        received_to=min(read_to, outcomes_to) + experiment.grace,
        cells_to={
            metric.name: min(
                to_block, cursors[f"cells/{metric.name}"], outcomes_to - metric.open_for
            )
            for metric in experiment.metrics
            if f"cells/{metric.name}" in cursors
        },
    )


_DROPPED = text(f"""
SELECT CAST(day AS timestamptz) AS from_block, dropped_at FROM {SCHEMA}.dropped_days
WHERE CAST(day + 1 AS timestamptz) > :reads_from
""")
_DAY = timedelta(days=1)
_LOOK_BACK = timedelta(microseconds=LOOK_BACK)


def _without_events(
    connection: Connection, experiments: Iterable[PipelineExperiment], days: Days
) -> set[str]:
    """Returns the ids of experiments that read events, for these days, which were dropped since."""
    reads_from = moment_of(days.from_block) - _LOOK_BACK
    dropped = connection.execute(_DROPPED, {"reads_from": reads_from}).all()
    gone: set[str] = set()
    for experiment in experiments:
        longest_open = max(metric.open_for for metric in experiment.metrics)
        reads_to = moment_of(days.to_block + longest_open + experiment.grace)
        reads_from = moment_of(max(days.from_block, experiment.starts_at)) - _LOOK_BACK
        # An experiment never read the events that were dropped before it was bound.
        if any(
            day.dropped_at >= experiment.bound_at
            and day.from_block < reads_to
            and day.from_block + _DAY > reads_from
            for day in dropped
        ):
            gone.add(experiment.experiment_id)
    return gone
