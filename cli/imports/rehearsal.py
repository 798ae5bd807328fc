"""The rehearsal of an import: its experiments, judged before anything of the file is stored.

The code that will judge them reads the file beside the log. So the report of an import, also of a
dry run, shows the units and outcomes that the verdicts will count, and those that they leave out.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Engine

from cli.imports.experiments import ExperimentPlan, spelled
from cli.imports.experiments_file import Experiment
from cli.imports.spool import Spool
from domain.cause import LEFT_OUT_OF_MEANS, Cause
from domain.evidence.counts import Counts, LeftOut
from domain.policy import Policy
from orchestration.pipeline.drafts import draft_bound
from storage.experiments.deploys import Receipt
from storage.experiments.freezing import freeze_whole
from storage.lake.day_engines import day_engine_settings, past_files
from storage.lake.lake import store_lake
from storage.lake.reader import Extent, LogRows, SealedLog, open_log
from storage.log.events import note_history
from storage.pipeline.experiments import open_experiments
from storage.pipeline.moments import microseconds
from storage.pipeline.recompute import copy_aside, evidence_rows, recomputed
from storage.schema.clock import closed_instant, store_time
from storage.upkeep.reading import separate_reading
from storage.upkeep.rehearsal import lay_over, written_rows
from storage.verdicts.evidence import CountsAt, ExperimentReading, count_units, read_experiments
from storage.views.history_counts import HistoryCount, count_history

# Reasons that an import counts: all events of a file are vouched for.
_REASONS = (*LEFT_OUT_OF_MEANS, Cause.EMPTY)


@dataclass(frozen=True, kw_only=True)
class ArmCount:
    """The units of an arm that the verdict counts."""

    units: int
    converting: int
    total: float


@dataclass(frozen=True, kw_only=True)
class ExperimentCount:
    """An experiment of the file as it will be judged.

    Attributes:
        history: The units and outcomes of file and log, whether they count or not.
        left_out: The units, and outcomes of counted units, that do not count, by reason.
        experiment_id: None where nothing was stored.
    """

    experiment: Experiment
    policy: Policy
    history: HistoryCount
    control: ArmCount
    treatment: ArmCount
    units: Counts
    left_out: Sequence[LeftOut]
    unseen_guardrails: Sequence[str]
    evidence: Mapping[str, Any]
    experiment_id: str | None = None


def judged(engine: Engine, plan: ExperimentPlan, spool: Spool) -> list[ExperimentCount]:
    """Returns how the experiments of a checked file will be judged; nothing of it is stored."""
    with engine.connect() as connection, connection.begin() as transaction:
        unseen = [plan.unseen(connection, spool.tally, each) for each in plan.experiments]
        # As history they are registered: a policy depends on that.
        note_history(connection, plan.project_id, list(spool.tally.last.items()))
        # It is never received, since it is undone.
        receipt = Receipt(at=store_time(connection))
        ids = plan.register(connection, spool.tally, receipt)
        rows = written_rows(connection)
        transaction.rollback()
    with separate_reading(engine) as separate:
        lay_over(separate, plan.project_id, rows)
        with past_files(separate) as files:
            for experiment_id in ids:
                freeze_whole(separate, experiment_id, files=files)
        histories = _computed(separate, plan, spool, ids)
        readings = {each.experiment_id: each for each in read_experiments(separate, only=ids)}
        arms = {experiment_id: _arms(readings[experiment_id]) for experiment_id in ids}
        looks = [_whole_life(readings[each], *counted) for each, counted in arms.items()]
        units = count_units(separate, looks)
        drafts = {each.draft.experiment_id: each.draft for each in draft_bound(separate, only=ids)}
    judgements: list[ExperimentCount] = []
    for experiment, experiment_id, names in zip(plan.experiments, ids, unseen, strict=True):
        reading = readings[experiment_id]
        control, treatment = arms[experiment_id]
        judgements.append(
            ExperimentCount(
                experiment=experiment,
                policy=reading.policy,
                history=histories[experiment_id],
                control=control,
                treatment=treatment,
                units=units[experiment_id].units,
                left_out=[*units[experiment_id].left_out, *_left_out(reading)],
                unseen_guardrails=names,
                evidence=json.loads(drafts[experiment_id].document),
            )
        )
    return judgements


def _computed(
    separate: Connection, plan: ExperimentPlan, spool: Spool, ids: Sequence[str]
) -> dict[str, HistoryCount]:
    """Computes whole lives into a separate reading, and returns the history of each."""
    as_of = microseconds(closed_instant(separate))
    experiments = open_experiments(separate, only=ids)
    with open_log(separate, store_lake(separate.engine)) as stored:
        log = _FileLog(**vars(stored), spool=spool, read_to=as_of)
        with recomputed(
            log, experiments, as_of=as_of, settings=day_engine_settings(), wanted=evidence_rows
        ) as lives:
            copy_aside(lives, separate)
            named = dict(zip(ids, plan.experiments, strict=True))
            commits = spool.tally.commits
            return {
                each.experiment_id: count_history(
                    lives.engine,
                    each,
                    control=spelled(commits, named[each.experiment_id].control_commit),
                    treatment=spelled(commits, named[each.experiment_id].treatment_commit),
                )
                for each in experiments
            }


def _whole_life(reading: ExperimentReading, control: ArmCount, treatment: ArmCount) -> CountsAt:
    """Returns when to count an experiment's units: at its end, whenever it was decided."""
    return CountsAt(
        experiment_id=reading.experiment_id,
        look=reading.as_of,
        in_cells=control.units + treatment.units,
        compared_with_none=(
            sum(reading.cells["n0"]) - control.units,
            sum(reading.cells["n1"]) - treatment.units,
        ),
    )


def _arms(reading: ExperimentReading) -> tuple[ArmCount, ArmCount]:
    """Returns the counted units of control, and of treatment.

    Strata with a single arm, such as that of a third arm of the file, are compared with nothing.
    """
    cells = reading.cells
    treated, untreated = (
        {stratum for stratum, units in zip(cells["stratum"], column, strict=True) if units}
        for column in (cells["n1"], cells["n0"])
    )
    compared = (treated & untreated) or (treated | untreated)
    is_compared = [stratum in compared for stratum in cells["stratum"]]
    control, treatment = (
        ArmCount(
            units=sum(compress(cells["n" + arm], is_compared)),
            converting=sum(compress(cells["x" + arm], is_compared)),
            total=sum(compress(cells["y" + arm], is_compared)),
        )
        for arm in ("0", "1")
    )
    return control, treatment


def _left_out(reading: ExperimentReading) -> list[LeftOut]:
    """Returns the outcomes of counted units that do not count, by reason."""
    outcomes: list[LeftOut] = []
    for companion in reading.policy.companions:
        cells = reading.cells_by_metric[companion.name]
        # A unit may have several events of a mean's companion.
        control = int(sum(cells["y0"] or cells["x0"]))
        treatment = int(sum(cells["y1"] or cells["x1"]))
        if companion.role in _REASONS and control + treatment:
            outcomes.append(
                LeftOut(reason=companion.role, of="outcomes", control=control, treatment=treatment)
            )
    return outcomes


@dataclass(frozen=True, kw_only=True)
class _FileLog(SealedLog):
    """The log, and the events of a file that is not stored yet.

    Attributes:
        read_to: All events up to then are read, in microseconds since the epoch.
    """

    spool: Spool
    read_to: int

    @contextmanager
    def rows(self, extent: Extent) -> Generator[LogRows]:
        """Yields the rows of an extent, with all of the file, and all of the log since it began."""
        with super().rows(replace(extent, received_to=self.read_to)) as rows:
            added = (batch.select(extent.columns.names) for batch in self.spool.batches())
            both = chain(rows.rest, added)
            yield replace(rows, rest=pa.RecordBatchReader.from_batches(extent.columns, both))
