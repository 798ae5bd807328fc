"""Catching up: experiments hours behind the log are computed whole by the engine of whole days.

So are those of an import before their first evaluation, and all that were open while the service
was down. From there on PostgreSQL adds the minute's increment. An experiment that is over when it
is first read, as most of an import are, meets no unit again: of its units no rows are stored but
those that evidence is read from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, text

from storage.lake.day_engines import DayEngineSettings
from storage.lake.lake import store_lake
from storage.lake.reader import read_apart
from storage.lake.sealed_hours import moved_to
from storage.pipeline.cursors import read_cursors, set_cursors
from storage.pipeline.experiments import (
    PipelineExperiment,
    ReadExperiment,
    blocks_to_expose,
    end_block,
    first_block,
    open_experiments,
)
from storage.pipeline.moments import EARLIEST, SECOND, microseconds
from storage.pipeline.recompute import RowSelection, add_to_stored, recomputed
from storage.pipeline.steps import AHEAD

# The longest part of the log that PostgreSQL reads: well beyond the hour between two runs of the
# day schedule, since a service that is idle is not behind.
LONGEST_INCREMENT = 3 * 3600 * SECOND


@dataclass(frozen=True, kw_only=True)
class _Backlog:
    """An experiment that is far behind, its unread blocks, and how many of its rows are stored."""

    unread: ReadExperiment
    stored_to: int
    is_over: bool

    @property
    def wanted(self) -> RowSelection:
        """Its rows that are to be added."""
        return RowSelection(since=self.stored_to, evidence_only=self.is_over)


def catch_up(
    connection: Connection, *, as_of: datetime, only: Sequence[str], settings: DayEngineSettings
) -> int:
    """Computes the experiments anew that are far behind, and adds the rows that were missing.

    Their cells are there at once, and are noted as closed by the step that follows. Returns how
    many exposures are new.

    Args:
        connection: In a transaction that is the only writer of derived tables.

    Raises:
        UnreadablePolicyError: A policy is of another version, or broken.
        TooManyAssignmentsError: An experiment has more assignments than can be numbered.
    """
    behind = _far_behind(connection, as_of=as_of, only=only)
    if not behind:
        return 0
    experiments = [
        replace(each.unread.experiment, number=number)
        for number, each in enumerate(behind.values())
    ]
    with (
        read_apart(connection.engine, store_lake(connection.engine)) as log,
        recomputed(
            log,
            experiments,
            as_of=microseconds(as_of),
            settings=_limited(connection, settings),
            wanted=lambda experiment: behind[experiment.experiment_id].wanted,
        ) as lives,
    ):
        before = _units(connection, list(behind))
        add_to_stored(connection, lives)
        added = _units(connection, list(behind)) - before
    over = [experiment_id for experiment_id, each in behind.items() if each.is_over]
    connection.execute(_NOTE_WHOLE_LIVES, {"ids": over})
    set_cursors(
        connection,
        [
            (stage, scope.experiment.experiment_id, scope.to_block)
            for scope in lives.read
            for stage in ("exposures", "conversions")
        ],
    )
    return added


def _far_behind(
    connection: Connection, *, as_of: datetime, only: Sequence[str]
) -> dict[str, _Backlog]:
    """Returns the experiments that are far behind, by their ids."""
    experiments = open_experiments(connection, only=only)
    cursors = read_cursors(connection, [experiment.experiment_id for experiment in experiments])
    stored_to = {
        experiment.experiment_id: _stored_to(experiment, cursors) for experiment in experiments
    }
    read_to = {
        experiment_id: min(cursors[experiment_id, stage] for stage in ("exposures", "conversions"))
        for experiment_id in stored_to
        if (experiment_id, "conversions") in cursors
    }
    moved = moved_to(connection)
    in_lake = 0 if moved is None else microseconds(moved)
    return {
        scope.experiment.experiment_id: _Backlog(
            unread=scope,
            stored_to=stored_to[scope.experiment.experiment_id],
            # These are all blocks that are ever read of it.
            is_over=(scope.from_block, scope.to_block)
            == (first_block(scope.experiment), end_block(scope.experiment))
            and (scope.experiment.experiment_id, "exposures") not in cursors,
        )
        for scope in blocks_to_expose(experiments, read_to=read_to, as_of=microseconds(as_of))
        if scope.to_block - scope.from_block > LONGEST_INCREMENT
        or scope.from_block - AHEAD < in_lake
    }


def _stored_to(experiment: PipelineExperiment, cursors: Mapping[tuple[str, str], int]) -> int:
    """Returns from when on rows of an experiment may be missing: the cells close last."""
    own = experiment.experiment_id
    stages = ("exposures", "conversions", *(f"cells/{each.name}" for each in experiment.metrics))
    return min(cursors.get((own, stage), EARLIEST) for stage in stages) - AHEAD


_EXPOSED = "treatment + control + partial + in_flight + excluded + warming"
_UNITS = text(f"""
SELECT coalesce(sum({_EXPOSED}), 0)::bigint FROM block_units WHERE experiment_id = ANY(:ids)
""")
_NOTE_WHOLE_LIVES = text(f"""
INSERT INTO whole_lives (experiment_id, units)
SELECT x.experiment_id, coalesce(sum({_EXPOSED}), 0)
FROM unnest(CAST(:ids AS text[])) AS x (experiment_id) LEFT JOIN block_units USING (experiment_id)
GROUP BY x.experiment_id
""")


def _units(connection: Connection, ids: Sequence[str]) -> int:
    """Returns how many units of experiments are exposed."""
    units: int = connection.execute(_UNITS, {"ids": ids}).scalar_one()
    return units


_STATEMENT_TIMEOUT = text(
    "SELECT setting::float / 1000 FROM pg_settings WHERE name = 'statement_timeout'"
)


def _limited(connection: Connection, settings: DayEngineSettings) -> DayEngineSettings:
    """Returns settings by which a step takes no longer than a statement of the connection may."""
    seconds = connection.execute(_STATEMENT_TIMEOUT).scalar_one()
    return replace(settings, seconds=seconds or None)
