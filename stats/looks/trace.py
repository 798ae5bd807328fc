"""A trace: counts, totals, e-process, VIF, guardrails and gates of experiments at every look."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice, pairwise
from typing import TypeVar

import numpy as np

from stats.counts.cell import Floats, Ints, Totals
from stats.counts.closed_cells import ClosedCells
from stats.counts.columns import Columns
from stats.counts.timeline import AnalysisCells, Stream, Timeline, timeline
from stats.gates.guardrail import Closings, Watch, watches
from stats.gates.vif import variance_inflation
from stats.looks.block import AnalysisBlocks
from stats.looks.closing import contrast_gone
from stats.looks.gate import GateReadings, gate_readings, left_out_outcomes, missed_outcomes
from stats.looks.marginal import MarginalInteractions, marginal_interactions
from stats.looks.policy import DAY
from stats.looks.series import Series
from stats.looks.stratification import Stage, Stratification
from stats.sequential.mixture import Mixture, log_component, precisions, variance_at

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
Number = TypeVar("Number", np.int64, np.float64, np.bool_)


@dataclass(frozen=True, kw_only=True)
class Trace(Columns):
    """Counts, test and gates at each look, one entry a look; counts are cumulative.

    Attributes:
        at: When the look is taken, epoch seconds.
        end: Exposure time that the target's closed cells reach; a thin stratum's lag behind.
        n1: Units of treatment.
        x1: Conversions of treatment.
        n0: Units of control.
        x0: Conversions of control.
        y1: Sum of treatment's values; 0 where the target is a conversion.
        y0: Sum of control's values.
        weight: Σ w of all cells; W of the totals is 0 before a continuous metric can be tested.
        totals: The sums that the test reads.
        events: The same sums of whether a unit had the event.
        log_day: Logarithm of the day component of E(0).
        log_fast: Logarithm of the fast component of E(0).
        log_e: Logarithm of E(0).
        futile: Whether the interval lies inside the futility margin.
        vif: Variance inflation factor; infinite where W = 0.
        contrast_gone: Whether units come but none can be compared any more.
        confounded: Whether another flag depends on the change, by which no strata are split.
        weight_before: Σ w a day of exposure earlier, in the same strata.
        units_before: Units of both arms then.
    """

    at: Ints
    end: Ints
    n1: Ints
    x1: Ints
    n0: Ints
    x0: Ints
    y1: Floats
    y0: Floats
    weight: Floats
    totals: Totals
    events: Totals
    log_day: Floats
    log_fast: Floats
    log_e: Floats
    futile: Flags
    vif: Floats
    contrast_gone: Flags
    confounded: Flags
    weight_before: Floats
    units_before: Ints

    def __len__(self) -> int:
        return self.at.size


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The looks of several experiments in one trace.

    Attributes:
        trace: All looks, experiment after experiment.
        first: The first look of each experiment, and the number of looks at the end.
        mixture: The precisions and thresholds, one entry a look.
        rates: Whether each experiment's target is a conversion.
        watches: The guardrails of each experiment.
        gates: Readings of each experiment's gates.
    """

    trace: Trace
    first: Ints
    mixture: Mixture
    rates: Flags
    watches: tuple[tuple[Watch, ...], ...]
    gates: tuple[GateReadings, ...]

    def rows(self, experiment: int) -> slice:
        """The looks of one experiment."""
        return slice(int(self.first[experiment]), int(self.first[experiment + 1]))


def traced(experiments: Sequence[Stratification]) -> Batch:
    """Traces several experiments; each one's numbers are as if it were traced alone.

    Each look is computed in the strata of its own stage, in which the past is computed anew.

    Args:
        experiments: The experiments, with the strata that they are compared in.
    """
    stages = [(experiment, stage) for experiment in experiments for stage in experiment.stages]
    batch = _of_stages(stages)
    if len(stages) == len(experiments):
        return batch
    return _joined(experiments, batch)


def _of_stages(stages: Sequence[tuple[Stratification, Stage]]) -> Batch:
    """The trace of each stage from the start on, as if it were an experiment of its own."""
    series, blocks = [stage.series for _, stage in stages], [stage.blocks for _, stage in stages]
    own, owners = _streams(series, blocks)
    line = timeline(own)
    looks, first = _looks(line, owners, len(series))
    row = np.concatenate([_last_closed(line, looks[i], i) for i in range(len(series))])
    mixture = _mixture(series, np.diff(first), _gathered(line.factor, row, 1.0))
    begin = np.repeat(
        np.array([experiment.begin for experiment in series], dtype=np.int64), np.diff(first)
    )
    totals = line.totals.gathered(row)
    trace = Trace(
        at=np.concatenate(looks),
        end=np.where(row < 0, begin, _gathered(line.end, row, 0)),
        n1=_gathered(line.n1, row, 0),
        x1=_gathered(line.x1, row, 0),
        n0=_gathered(line.n0, row, 0),
        x0=_gathered(line.x0, row, 0),
        y1=_gathered(line.y1, row, 0.0),
        y0=_gathered(line.y0, row, 0.0),
        weight=_gathered(line.weight, row, 0.0),
        totals=totals,
        events=line.events.gathered(row),
        log_day=log_component(totals.S, totals.V0, mixture.rho[:, 0]),
        log_fast=log_component(totals.S, totals.V0, mixture.rho[:, 1]),
        log_e=mixture.log_e(totals.S, totals.V0),
        futile=_futile(series, totals, mixture, np.diff(first)),
        vif=_gathered(_vif(line, len(series)), row, np.inf),
        contrast_gone=_gathered(
            np.concatenate(
                [contrast_gone(experiment, line, i) for i, experiment in enumerate(series)]
            ),
            row,
            0,
        ),
        confounded=np.concatenate(
            [
                experiment.is_confounded(own)
                for (experiment, _), own in zip(stages, looks, strict=True)
            ]
        ),
        weight_before=_gathered(_day_before(line, line.weight, len(series)), row, 0.0),
        units_before=_gathered(_day_before(line, line.n1 + line.n0, len(series)), row, 0),
    )
    looked = [slice(int(begin), int(stop)) for begin, stop in pairwise(first)]
    units = trace.n1 + trace.n0
    margins, missed = _margins(stages), missed_outcomes(series, blocks, looks)
    left_out = left_out_outcomes(series, blocks, looks)
    return Batch(
        trace=trace,
        first=first,
        mixture=mixture,
        rates=np.array([experiment.target.values is None for experiment in series], dtype=np.bool_),
        watches=tuple(_watches(series, line, owners)),
        gates=tuple(
            gate_readings(
                experiment,
                line,
                i,
                blocks=blocks[i],
                at=trace.at[own],
                row=row[own],
                units=units[own],
                score=trace.totals.S[own],
                missed=missed[i],
                left_out=left_out[i],
                margins=margins[i],
            )
            for i, (experiment, own) in enumerate(zip(series, looked, strict=True))
        ),
    )


def _margins(
    stages: Sequence[tuple[Stratification, Stage]],
) -> list[MarginalInteractions | None]:
    """The marginal interactions of each stage's experiment, worked out once for each."""
    marginals: list[MarginalInteractions | None] = []
    for number, (experiment, _) in enumerate(stages):
        same = number > 0 and stages[number - 1][0] is experiment
        marginals.append(marginals[-1] if same else marginal_interactions(experiment))
    return marginals


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


def _joined(experiments: Sequence[Stratification], batch: Batch) -> Batch:
    """The traces of stages, each cut to its own looks, one after the other."""
    rows: list[Ints] = []
    watches: list[tuple[Watch, ...]] = []
    gates: list[GateReadings] = []
    number = 0
    for experiment in experiments:
        chosen = [
            _own(batch.trace.at[batch.rows(number + i)], s) for i, s in enumerate(experiment.stages)
        ]
        rows += [own + batch.first[number + i] for i, own in enumerate(chosen)]
        watches.append(_watches_in_turn(experiment, batch.watches[number : number + len(chosen)]))
        read = [batch.gates[number + i][own] for i, own in enumerate(chosen)]
        gates.append(reduce(partial(GateReadings.then, series=experiment.series), read))
        number += len(chosen)
    order = np.concatenate(rows)
    stages_first = np.cumsum([0, *(len(experiment.stages) for experiment in experiments)])
    sizes = np.concatenate(([0], np.cumsum([own.size for own in rows])))
    return Batch(
        trace=batch.trace[order],
        first=sizes[stages_first].astype(np.int64),
        mixture=batch.mixture[order],
        rates=batch.rates[stages_first[:-1]],
        watches=tuple(watches),
        gates=tuple(gates),
    )


def _own(at: Ints, stage: Stage) -> Ints:
    """The numbers of the moments that lie in a stage."""
    return np.flatnonzero((at >= stage.begin) & (at < stage.end))


def _watches_in_turn(
    experiment: Stratification, watches: Sequence[tuple[Watch, ...]]
) -> tuple[Watch, ...]:
    """The watches over an experiment's guardrails, each closing as its own stage sees it."""
    return tuple(
        reduce(
            Watch.then,
            [
                watch[_own(watch.at, stage)]
                for watch, stage in zip(same, experiment.stages, strict=True)
            ],
        )
        for same in zip(*watches, strict=True)
    )


def target_cells(strata: Stratification, look: int) -> AnalysisCells:
    """The cells of analysis blocks of an experiment's target that had closed by a look."""
    stage = strata.stage_at(look)
    own = _target_stream(stage.series, stage.blocks)
    line = timeline([own])
    return line.cells[line.at[line.cells.row] <= look]


def _streams(
    series: Sequence[Series], blocks: Sequence[AnalysisBlocks]
) -> tuple[list[Stream], Ints]:
    """The targets, then the guardrails of all experiments; and whose each is."""
    streams = [_target_stream(*pair) for pair in zip(series, blocks, strict=True)]
    owners = list(range(len(series)))
    for number, (experiment, own) in enumerate(zip(series, blocks, strict=True)):
        streams += [
            _stream(experiment, own, rail.window_seconds, rail.cells)
            for rail in experiment.guardrails
        ]
        owners += [number] * len(experiment.guardrails)
    return streams, np.array(owners, dtype=np.int64)


def _target_stream(series: Series, blocks: AnalysisBlocks) -> Stream:
    return _stream(series, blocks, series.policy.window_seconds, series.target)


def _stream(
    series: Series, blocks: AnalysisBlocks, window_seconds: int, cells: ClosedCells
) -> Stream:
    closes_after = window_seconds + series.policy.grace_seconds
    closed = int(np.searchsorted(blocks.ends, series.as_of - closes_after, side="right"))
    return Stream(
        cells=cells,
        cell_end=blocks.end_of(cells.stratum, cells.block),
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


def _last_closed(line: Timeline, looks: Ints, experiment: int) -> Ints:
    """The last closing of an experiment's target up to each look; −1 where there is none."""
    rows = line.rows(experiment)
    closed = np.searchsorted(line.at[rows], looks, side="right")
    return np.where(closed > 0, rows.start + closed - 1, -1)


def _gathered(
    values: np.ndarray[tuple[int, ...], np.dtype[Number]], row: Ints, missing: float
) -> np.ndarray[tuple[int, ...], np.dtype[Number]]:
    """The values of closings at looks; `missing` before the first closing."""
    return np.append(values, np.array(missing, dtype=values.dtype))[row]


def _vif(line: Timeline, experiments: int) -> Floats:
    """The variance inflation factor at the closings of targets."""
    cells = line.cells.of_streams(0, experiments)
    first = line.first[: experiments + 1]
    return variance_inflation(
        look=cells.row,
        experiment=cells.stream,
        stratum=cells.stratum,
        n1=cells.n1,
        n0=cells.n0,
        W=line.weight[: first[-1]],
        first=first,
    )


def _watches(series: Sequence[Series], line: Timeline, owners: Ints) -> list[tuple[Watch, ...]]:
    """The watches over each experiment's guardrails, whose streams follow those of the targets."""
    guardrails = [guardrail for own in series for guardrail in own.guardrails]
    if not guardrails:
        return [()] * len(series)
    first = line.first[len(series) :]
    rows = slice(int(first[0]), int(first[-1]))
    sizes = np.diff(first)
    rho = precisions([series[owner].policy.rho for owner in owners[len(series) :].tolist()])
    is_mean = np.repeat([guardrail.cells.values is not None for guardrail in guardrails], sizes)
    each = iter(
        watches(
            guardrails,
            Closings(
                at=line.at[rows],
                totals=line.totals[rows],
                control=line.level(rows, is_mean, treated=False),
                treatment=line.level(rows, is_mean, treated=True),
                rho=np.repeat(rho, sizes, axis=0) * line.factor[rows, None],
                first=first - first[0],
            ),
            [
                len(own.guardrails) / own.policy.guardrail_alpha
                for own in series
                for _ in own.guardrails
            ],
        )
    )
    return [tuple(islice(each, len(own.guardrails))) for own in series]


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
