"""A trace: counts, totals and e-process of experiments at every look."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice, pairwise
from typing import TypeVar

import numpy as np

from domain.metric import DAY
from stats.counts.cell import Floats, Ints, Totals
from stats.counts.columns import Columns
from stats.counts.timeline import (
    AnalysisCells,
    ComparedCounts,
    Stream,
    Timeline,
    TimelineSums,
    timeline,
)
from stats.looks.block import AnalysisBlocks
from stats.looks.closing import contrast_gone
from stats.looks.lost_history import line_on_lost_histories
from stats.looks.series import Companion, Series
from stats.looks.stratification import Stage, Stratification
from stats.sequential.line import LineGuard
from stats.sequential.mixture import Mixture, log_component, precisions, variance_at

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
Number = TypeVar("Number", np.int64, np.float64, np.bool_)
Read = TypeVar("Read", bound=Columns)


@dataclass(frozen=True, kw_only=True)
class Trace(TimelineSums, Columns):
    """Counts and test at each look, an entry a look.

    Attributes:
        at: When the look is taken, epoch seconds.
        log_e: Logarithm of E(0); `log_day` and `log_fast` are those of its components.
        weight_before: Σ w a day of exposure earlier, in the same strata.
        history: The line on lost histories, which E has; None where no mean is adjusted.
    """

    at: Ints
    end: Ints
    compared: ComparedCounts
    log_day: Floats
    log_fast: Floats
    log_e: Floats
    futile: Flags
    contrast_gone: Flags
    weight_before: Floats
    units_before: Ints
    history: LineGuard | None = None

    def __len__(self) -> int:
        return self.at.size


@dataclass(frozen=True, kw_only=True)
class StageLooks:
    """All looks of an experiment, computed in the strata of a stage.

    Attributes:
        row: The last closing of the target up to each look; −1 where there is none.
    """

    strata: Stratification
    stage: Stage
    line: Timeline
    number: int
    guardrails: range
    trace: Trace
    row: Ints

    @property
    def series(self) -> Series:
        """The experiment in the strata of the stage."""
        return self.stage.series

    @property
    def closings(self) -> slice:
        """The closings of the target."""
        return self.line.rows(self.number)

    def stream(self, metric: Companion) -> Stream:
        """The stream of a metric of the same units."""
        return _stream(self.series, self.stage.blocks, metric)

    def mixture(self, entries: int) -> Mixture:
        """The precisions of the experiment's test, so many times over; no threshold."""
        return Mixture(
            rho=np.tile(self.series.policy.rho, (entries, 1)), log_threshold=np.zeros(entries)
        )


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The looks of several experiments in a single trace; an entry of the mixture is a look's."""

    trace: Trace
    first: Ints
    mixture: Mixture
    rates: Flags
    stages: tuple[tuple[StageLooks, ...], ...]

    def rows(self, experiment: int) -> slice:
        """The looks of an experiment."""
        return slice(int(self.first[experiment]), int(self.first[experiment + 1]))


def traced(experiments: Sequence[Stratification]) -> Batch:
    """Traces several experiments; the numbers of each are as if it were traced alone.

    Each look is computed in the strata of its own stage, in which the past is computed anew.
    """
    batch = _of_stages(
        [(experiment, stage) for experiment in experiments for stage in experiment.stages]
    )
    if len(batch.stages) == len(experiments):
        return batch
    each = iter([looks for own in batch.stages for looks in own])
    stages = tuple(tuple(islice(each, len(experiment.stages))) for experiment in experiments)
    rows = [
        _own(looks.trace.at, looks.stage) + batch.first[looks.number]
        for own in stages
        for looks in own
    ]
    order = np.concatenate(rows)
    stages_first = np.cumsum([0, *(len(own) for own in stages)])
    sizes = np.concatenate(([0], np.cumsum([own.size for own in rows])))
    return Batch(
        trace=batch.trace[order],
        first=sizes[stages_first].astype(np.int64),
        mixture=batch.mixture[order],
        rates=batch.rates[stages_first[:-1]],
        stages=stages,
    )


# The sums of a closing that a look has as they are.
_GATHERED = ("n1", "x1", "n0", "x0", "weight")


def _of_stages(stages: Sequence[tuple[Stratification, Stage]]) -> Batch:
    """The trace of each stage from the start on, as if it were an experiment of its own."""
    series, blocks = [stage.series for _, stage in stages], [stage.blocks for _, stage in stages]
    own, owners = _streams(series, blocks)
    line = timeline(own)
    looks, first = _looks(line, owners, len(series))
    rows = [line.row_at(i, looks[i]) for i in range(len(series))]
    row = np.concatenate(rows)
    factor = _gathered(line.factor, row, 1.0)
    begin = np.repeat(
        np.array([experiment.begin for experiment in series], dtype=np.int64), np.diff(first)
    )
    totals, history = line.totals.gathered(row), None
    if line.histories is not None:
        known = np.pad(line.histories, ((0, 0), (0, 1)))[:, row]
        of_counts = _mixture(series, np.diff(first), np.ones(row.size))
        history, totals, factor = line_on_lost_histories(known, totals, factor, of_counts)
    mixture = _mixture(series, np.diff(first), factor)
    log_e = mixture.log_e(totals.S, totals.V0)
    trace = Trace(
        at=np.concatenate(looks),
        end=np.where(row < 0, begin, _gathered(line.end, row, 0)),
        **{name: _gathered(getattr(line, name), row, 0) for name in _GATHERED},
        compared=ComparedCounts(
            **{name: _gathered(counts, row, 0) for name, counts in vars(line.compared).items()}
        ),
        totals=totals,
        events=line.events.gathered(row),
        log_day=log_component(totals.S, totals.V0, mixture.rho[:, 0]),
        log_fast=log_component(totals.S, totals.V0, mixture.rho[:, 1]),
        log_e=log_e if history is None else history.guarded(log_e),
        history=history,
        futile=_futile(series, totals, mixture, np.diff(first)),
        contrast_gone=_gathered(
            np.concatenate(
                [contrast_gone(experiment, line, i) for i, experiment in enumerate(series)]
            ),
            row,
            0,
        ),
        weight_before=_gathered(_day_before(line, line.weight, len(series)), row, 0.0),
        units_before=_gathered(_day_before(line, line.compared.units, len(series)), row, 0),
    )
    return Batch(
        trace=trace,
        first=first,
        mixture=mixture,
        rates=np.array([experiment.target.values is None for experiment in series], dtype=np.bool_),
        stages=tuple(
            (
                StageLooks(
                    strata=strata,
                    stage=stage,
                    line=line,
                    number=i,
                    guardrails=guardrails,
                    trace=trace[begin:stop],
                    row=rows[i],
                ),
            )
            for i, ((strata, stage), guardrails, (begin, stop)) in enumerate(
                zip(stages, _guardrails(series), pairwise(first.tolist()), strict=True)
            )
        ),
    )


def in_turn(read: Sequence[Read], at: Sequence[Ints], stages: Sequence[StageLooks]) -> Read:
    """The columns that an experiment's stages read, each at its own moments, in their order."""
    if len(stages) == 1:
        return read[0]
    own = [
        columns[_own(moments, looks.stage)]
        for columns, moments, looks in zip(read, at, stages, strict=True)
    ]
    return reduce(type(own[0]).then, own)


def _own(at: Ints, stage: Stage) -> Ints:
    """The numbers of the moments that lie in a stage."""
    return np.flatnonzero((at >= stage.begin) & (at < stage.end))


def _day_before(
    line: Timeline, sums: np.ndarray[tuple[int, ...], np.dtype[Number]], experiments: int
) -> np.ndarray[tuple[int, ...], np.dtype[Number]]:
    """The sums of each target a day of exposure before each of its closings."""
    before = np.zeros(int(line.first[experiments]), dtype=sums.dtype)
    for experiment in range(experiments):
        rows = line.rows(experiment)
        earlier = np.searchsorted(line.end[rows], line.end[rows] - DAY, side="right")
        before[rows] = np.concatenate((np.zeros(1, dtype=sums.dtype), sums[rows]))[earlier]
    return before


def target_cells(strata: Stratification, look: int) -> AnalysisCells:
    """The cells of analysis blocks of an experiment's target that had closed by a look."""
    stage = strata.stage_at(look)
    line = timeline([_target_stream(stage.series, stage.blocks)])
    return line.cells[line.at[line.cells.row] <= look]


def _streams(
    series: Sequence[Series], blocks: Sequence[AnalysisBlocks]
) -> tuple[list[Stream], Ints]:
    """The targets, then the guardrails of all experiments; and whose each is."""
    streams = [_target_stream(*pair) for pair in zip(series, blocks, strict=True)]
    owners = list(range(len(series)))
    for number, (experiment, own) in enumerate(zip(series, blocks, strict=True)):
        watched = [
            Companion(window_seconds=guardrail.window_seconds, cells=cells)
            for guardrail in experiment.guardrails
            for cells in guardrail.streams
        ]
        streams += [_stream(experiment, own, metric) for metric in watched]
        owners += [number] * len(watched)
    return streams, np.array(owners, dtype=np.int64)


def _guardrails(series: Sequence[Series]) -> list[range]:
    """The numbers of the streams of each experiment's guardrails."""
    streams = (sum(len(rail.streams) for rail in each.guardrails) for each in series)
    stops = np.cumsum([len(series), *streams]).tolist()
    return [range(*bounds) for bounds in pairwise(stops)]


def _target_stream(series: Series, blocks: AnalysisBlocks) -> Stream:
    target = Companion(window_seconds=series.policy.window_seconds, cells=series.target)
    return _stream(series, blocks, target)


def _stream(series: Series, blocks: AnalysisBlocks, metric: Companion) -> Stream:
    return stream_at(series, blocks, metric, series.as_of)


def stream_at(series: Series, blocks: AnalysisBlocks, metric: Companion, look: int) -> Stream:
    """The stream of a metric of an experiment's units, as known at a time."""
    closes_after = metric.window_seconds + series.policy.grace_seconds
    closed = int(np.searchsorted(blocks.ends, look - closes_after, side="right"))
    return Stream(
        cells=metric.cells,
        cell_end=blocks.end_of(metric.cells.stratum, metric.cells.block),
        ends=blocks.ends[:closed],
        closes_after=closes_after,
    )


def _looks(line: Timeline, owners: Ints, experiments: int) -> tuple[list[Ints], Ints]:
    """The closing times over target and guardrails, of each experiment; and where each begins."""
    closings: list[list[Ints]] = [[] for _ in range(experiments)]
    for stream, owner in enumerate(owners.tolist()):
        closings[owner].append(line.at[line.rows(stream)])
    looks = [
        times[0] if len(times) == 1 else np.unique(np.concatenate(times)) for times in closings
    ]
    first = np.concatenate(([0], np.cumsum([look.size for look in looks]))).astype(np.int64)
    return looks, first


def _gathered(
    values: np.ndarray[tuple[int, ...], np.dtype[Number]], row: Ints, missing: float
) -> np.ndarray[tuple[int, ...], np.dtype[Number]]:
    """The values of closings at looks; `missing` before the first closing."""
    return np.append(values, np.array(missing, dtype=values.dtype))[row]


def _futile(series: Sequence[Series], totals: Totals, mixture: Mixture, looks: Ints) -> Flags:
    """Whether each look's interval lies inside ± margin · control's rate."""
    margins = [experiment.policy.futility_margin for experiment in series]
    share = np.repeat([0.0 if margin is None else margin for margin in margins], looks)
    inside = np.zeros(share.size, dtype=np.bool_)
    rows = np.flatnonzero((share > 0) & (totals.W > 0))
    part, mix, lift = totals[rows], mixture[rows], totals[rows].lift
    bound = share[rows] * np.abs(part.control_rate)
    excluded = np.abs(lift) < bound
    for end in (bound, -bound):
        excluded &= mix.excess(part.S - end * part.W, variance_at(part, lift, end)) >= 0
    inside[rows] = excluded
    return inside


def _mixture(series: Sequence[Series], looks: Ints, factor: Floats) -> Mixture:
    rho = precisions([experiment.policy.rho for experiment in series])
    threshold = np.array([experiment.policy.log_threshold for experiment in series])
    return Mixture(
        rho=np.repeat(rho, looks, axis=0) * factor[:, None],
        log_threshold=np.repeat(threshold, looks),
    )
