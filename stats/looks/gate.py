"""Readings of the gates: the statistic and alarm of each at every look, and which causes hold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from domain.cause import LEFT_OUT, PERMANENT, Cause
from stats.counts.cell import Floats, Ints, number_or_none
from stats.counts.columns import Rows
from stats.counts.finding import counted_from
from stats.counts.timeline import Stream, Timeline
from stats.gates.after_window import AfterWindow, after_window
from stats.gates.crossover import crossed_units, crossover_share, is_not_sticky
from stats.gates.guardrail import Watch
from stats.gates.interaction import Interaction, interaction, no_interaction
from stats.gates.lateness import lateness
from stats.gates.left_out import LeftOut, LeftOutReading, left_out
from stats.gates.sample_ratio import sample_ratio
from stats.gates.shortfall import Shortfall, Shortfalls, shortfalls
from stats.looks.block import AnalysisBlocks
from stats.looks.marginal import MarginalInteractions
from stats.looks.series import Series
from stats.sequential.mixture import Mixture, e_value

ALARM = 100.0
SAMPLE_RATIO_ALARM = 1000.0
ARRIVAL = "arrival"
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class Gates:
    """The gates as of one look; None where there is nothing to read.

    Attributes:
        vif: Variance inflation factor, infinite where W = 0.
        sample_ratio_e: Evidence against the declared shares; alarm at 1000.
        crossover_share: Share of units seen in both arms; alarm above 5 %, of 10 units at least.
        lateness_e: Evidence that outcomes come too late more often in one arm; alarm at 100.
        interaction_e: Evidence that the relative effect differs between strata; alarm at 100.
        after_window_e: Evidence that outcomes come after the window more often in one arm.
        left_out: The outcomes that the target leaves out, by reason; alarm at 100.
        interacting_because: The causes that hold, each also where another gate masks it.
        shortfall: Treatment's share of arrivals; None unless `arrival` is breached.
    """

    vif: float | None
    sample_ratio_e: float | None
    crossover_share: float | None
    lateness_e: float | None
    interaction_e: float | None
    after_window_e: float | None
    left_out: tuple[LeftOutReading, ...]
    interacting_because: tuple[Cause, ...]
    shortfall: Shortfall | None


NO_GATES = Gates(
    vif=None,
    sample_ratio_e=None,
    crossover_share=None,
    lateness_e=None,
    interaction_e=None,
    after_window_e=None,
    left_out=(),
    interacting_because=(),
    shortfall=None,
)


@dataclass(frozen=True, kw_only=True)
class GateReadings:
    """Readings of an experiment's gates, one entry a look; NaN where a gate has no data.

    Attributes:
        log_sample_ratio: Logarithm of the evidence against the declared shares.
        crossover_share: Share of units in closed cells that were exposed to both arms.
        log_lateness: Logarithm of the evidence of unequal lateness.
        log_after_window: Logarithm of the evidence of outcomes after the window.
        left_out: The outcomes that the target leaves out, by reason.
        strata: The interaction between strata.
        alarms: Of each cause, at which looks it holds, whether or not it is permanent.
        arrival: The watch over the arrivals of treatment, where allocations are declared.
        shortfalls: Treatment's share of arrivals; None where `arrival` is never breached.
    """

    log_sample_ratio: Floats
    crossover_share: Floats
    log_lateness: Floats
    log_after_window: Floats
    left_out: Mapping[Cause, LeftOut]
    strata: Interaction
    alarms: dict[Cause, Flags]
    arrival: Watch | None
    shortfalls: Shortfalls | None

    @cached_property
    def holds(self) -> dict[Cause, Flags]:
        """Of each cause, at which looks it holds; from the first on, where it is permanent."""
        return {
            cause: _ever(alarm) if cause in PERMANENT else alarm
            for cause, alarm in self.alarms.items()
        }

    def __getitem__(self, rows: Rows) -> Self:
        """What is read at some looks; of shortfalls nothing, which look back."""
        return replace(
            self,
            log_sample_ratio=self.log_sample_ratio[rows],
            crossover_share=self.crossover_share[rows],
            log_lateness=self.log_lateness[rows],
            log_after_window=self.log_after_window[rows],
            left_out={reason: outcomes[rows] for reason, outcomes in self.left_out.items()},
            strata=self.strata[rows],
            alarms={cause: alarm[rows] for cause, alarm in self.alarms.items()},
            arrival=None if self.arrival is None else self.arrival[rows],
            shortfalls=None,
        )

    def then(self, later: Self, *, series: Series) -> Self:
        """The readings at these looks, and at later ones after them.

        Args:
            later: The readings of the later looks.
        """
        arrival = None
        if self.arrival is not None and later.arrival is not None:
            arrival = self.arrival.then(later.arrival)
        return replace(
            self,
            log_sample_ratio=np.concatenate((self.log_sample_ratio, later.log_sample_ratio)),
            crossover_share=np.concatenate((self.crossover_share, later.crossover_share)),
            log_lateness=np.concatenate((self.log_lateness, later.log_lateness)),
            log_after_window=np.concatenate((self.log_after_window, later.log_after_window)),
            left_out={
                reason: outcomes.then(later.left_out[reason])
                for reason, outcomes in self.left_out.items()
            },
            strata=self.strata.then(later.strata),
            alarms={
                cause: np.concatenate((alarm, later.alarms[cause]))
                for cause, alarm in self.alarms.items()
            },
            arrival=arrival,
            shortfalls=_shortfalls(series, arrival),
        )

    @property
    def permanent(self) -> Flags:
        """Whether a permanent cause holds."""
        return np.logical_or.reduce([self.holds[cause] for cause in PERMANENT])

    def at(self, look: int, *, vif: float | None) -> Gates:
        """The gates as of one look."""
        return Gates(
            vif=vif,
            sample_ratio_e=_e_or_none(float(self.log_sample_ratio[look])),
            crossover_share=number_or_none(self.crossover_share[look]),
            lateness_e=_e_or_none(float(self.log_lateness[look])),
            interaction_e=_e_or_none(float(self.strata.log_e[look])),
            after_window_e=_e_or_none(float(self.log_after_window[look])),
            left_out=tuple(
                outcomes.at(look, reason=reason) for reason, outcomes in self.left_out.items()
            ),
            interacting_because=tuple(cause for cause in Cause if self.holds[cause][look]),
            shortfall=self._shortfall(look),
        )

    def _shortfall(self, look: int) -> Shortfall | None:
        if self.arrival is None or self.shortfalls is None or self.arrival.breached_at is None:
            return None
        breached = self.arrival.at[look] >= self.arrival.breached_at
        return self.shortfalls.at(look) if breached else None


def gate_readings(
    series: Series,
    line: Timeline,
    experiment: int,
    *,
    blocks: AnalysisBlocks,
    at: Ints,
    row: Ints,
    units: Ints,
    score: Floats,
    missed: tuple[Floats, Floats] | None,
    left_out: Mapping[Cause, LeftOut],
    margins: MarginalInteractions | None = None,
) -> GateReadings:
    """Reads an experiment's gates at each of its looks.

    Args:
        line: The timeline; its first streams are the experiments' targets.
        experiment: The number of the experiment.
        at: Its looks.
        row: The last closing of its target up to each look; −1 where there is none.
        units: Units in closed cells at each look.
        score: The target's score at each look.
        missed: Of `missed_outcomes`, at each look.
        left_out: Of `left_out_outcomes`, at each look.
        margins: The interaction between the values of flags, where any are known.
    """
    crossed = _crossed(series, line, experiment, blocks, at)
    log_sample_ratio, arrival = _sample_ratio(series, at)
    log_lateness = _lateness(series, line, experiment, blocks, at)
    log_after_window, missed_score = _after_window(series, missed, at)
    if margins is None:
        own = np.where(row < 0, -1, row - line.first[experiment])
        strata = _strata(series, line, experiment).gathered(own)
    else:
        strata = margins.gathered(at)
    return GateReadings(
        log_sample_ratio=log_sample_ratio,
        crossover_share=(
            np.full(at.size, np.nan)
            if series.crossings is None
            else crossover_share(crossed, units)
        ),
        log_lateness=log_lateness,
        log_after_window=log_after_window,
        left_out=left_out,
        strata=strata,
        alarms={
            Cause.SAMPLE_RATIO: log_sample_ratio >= math.log(SAMPLE_RATIO_ALARM),
            Cause.CROSSOVER: is_not_sticky(crossed, units),
            Cause.LATENESS: log_lateness >= math.log(ALARM),
            Cause.INTERACTION: strata.log_e >= math.log(ALARM),
            Cause.AFTER_WINDOW: _hides_outcomes(series, log_after_window)
            & (missed_score * score < 0),
            **{
                reason: (outcomes.log_e >= math.log(ALARM)) & (outcomes.score * score < 0)
                if (outcomes := left_out.get(reason)) is not None
                else np.zeros(at.size, dtype=np.bool_)
                for reason in LEFT_OUT
            },
        },
        arrival=arrival,
        shortfalls=_shortfalls(series, arrival),
    )


def _sample_ratio(series: Series, at: Ints) -> tuple[Floats, Watch | None]:
    """The evidence against the declared shares, and the watch over arrivals."""
    evidence = None
    if series.allocation is not None and series.arrivals is not None:
        evidence = sample_ratio(
            series.allocation,
            series.arrivals,
            at=at,
            block_seconds=series.policy.block_seconds,
            grace_seconds=series.policy.grace_seconds,
        )
    if evidence is None:
        return np.full(at.size, np.nan), None
    return evidence.log_e, Watch(
        metric=ARRIVAL,
        threshold=SAMPLE_RATIO_ALARM,
        awaited=False,
        at=at,
        log_e=evidence.log_too_few,
        lift=np.full(at.size, np.nan),
        log_excluded=np.full(at.size, -np.inf),
    )


def _shortfalls(series: Series, arrival: Watch | None) -> Shortfalls | None:
    breached_at = None if arrival is None else arrival.breached_at
    if arrival is None or breached_at is None:
        return None
    if series.allocation is None or series.arrivals is None:
        return None
    return shortfalls(
        series.allocation,
        series.arrivals,
        at=arrival.at,
        block_seconds=series.policy.block_seconds,
        grace_seconds=series.policy.grace_seconds,
        breached_at=breached_at,
    )


def _crossed(
    series: Series, line: Timeline, experiment: int, blocks: AnalysisBlocks, at: Ints
) -> Ints:
    """How many units of closed cells are known to have crossed, at each look."""
    crossings = series.crossings
    if crossings is None or not crossings.at.size:
        return np.zeros(at.size, dtype=np.int64)
    rows = line.rows(experiment)
    row = np.searchsorted(line.end[rows], blocks.end_of(crossings.stratum, crossings.block))
    return crossed_units(counted_from(row, crossings.at, closings=line.at[rows]), at)


def _lateness(
    series: Series, line: Timeline, experiment: int, blocks: AnalysisBlocks, at: Ints
) -> Floats:
    """The logarithm of the evidence of unequal lateness at each look; NaN where it is not read."""
    late = series.late
    if late is None:
        return np.full(at.size, np.nan)
    if not late.at.size:
        return _mixture(series, at.size).log_e(np.zeros(at.size), np.zeros(at.size))
    rows = line.rows(experiment)
    row = np.searchsorted(line.end[rows], blocks.end_of(late.stratum, late.block))
    score, variance = lateness(
        late,
        line.cells.of_streams(experiment, experiment + 1),
        row=row + rows.start,
        counted_from=counted_from(row, late.at, closings=line.at[rows]),
        at=at,
    )
    return _mixture(series, at.size).log_e(score, variance)


def missed_outcomes(
    series: Sequence[Series], blocks: Sequence[AnalysisBlocks], at: Sequence[Ints]
) -> list[tuple[Floats, Floats] | None]:
    """Score and variance of the outcomes after the window, at each look of several experiments.

    None where that is not read; the score is above 0 where they are more in treatment.
    """
    asked = {
        number: AfterWindow(
            target=each.target,
            long=each.long,
            cell_end=own.end_of(each.long.cells.stratum, each.long.cells.block),
            ends=own.ends,
            grace_seconds=each.policy.grace_seconds,
            at=looks,
        )
        for number, (each, own, looks) in enumerate(zip(series, blocks, at, strict=True))
        if each.long is not None and each.policy.after_window_at is not None
    }
    read = dict(zip(asked, after_window(list(asked.values())), strict=True))
    return [read.get(number) for number in range(len(series))]


def left_out_outcomes(
    series: Sequence[Series], blocks: Sequence[AnalysisBlocks], at: Sequence[Ints]
) -> list[dict[Cause, LeftOut]]:
    """The outcomes that the targets of several experiments leave out, by reason, at each look."""
    asked: list[tuple[Stream, Ints, Mixture]] = []
    for each, own, looks in zip(series, blocks, at, strict=True):
        closes_after = each.policy.closes_after
        closed = int(np.searchsorted(own.ends, each.as_of - closes_after, side="right"))
        asked += [
            (
                Stream(
                    cells=cells,
                    cell_end=own.end_of(cells.stratum, cells.block),
                    ends=own.ends[:closed],
                    closes_after=closes_after,
                ),
                looks,
                _mixture(each, looks.size),
            )
            for cells in each.left_out.values()
        ]
    read = iter(left_out(asked))
    return [{reason: next(read) for reason in each.left_out} for each in series]


def _after_window(
    series: Series, missed: tuple[Floats, Floats] | None, at: Ints
) -> tuple[Floats, Floats]:
    """The logarithm of the evidence of outcomes after the window, and its score, at each look."""
    if missed is None:
        return np.full(at.size, np.nan), np.full(at.size, np.nan)
    score, variance = missed
    return _mixture(series, at.size).log_e(score, variance), score


def _hides_outcomes(series: Series, log_after_window: Floats) -> Flags:
    """Whether the window misses more of one arm's outcomes, which makes its rate look lower."""
    threshold = series.policy.after_window_at
    return log_after_window >= math.log(math.inf if threshold is None else threshold)


def _strata(series: Series, line: Timeline, experiment: int) -> Interaction:
    """The interaction between strata at each closing of the target."""
    rows = line.rows(experiment)
    closings = rows.stop - rows.start
    # Most have one stratum.
    if series.target.values is not None or not np.any(series.target.stratum):
        return no_interaction(closings)
    cells = line.cells.of_streams(experiment, experiment + 1)
    if not np.any(cells.stratum[1:] != cells.stratum[:-1]):
        return no_interaction(closings)
    return interaction(cells, first_row=rows.start, mixture=_mixture(series, closings))


def _mixture(series: Series, entries: int) -> Mixture:
    return Mixture(
        rho=np.tile(series.policy.rho, (entries, 1)),
        log_threshold=np.full(entries, math.log(ALARM)),
    )


def _ever(holds: Flags) -> Flags:
    """Whether a flag is set at a look or was at an earlier one."""
    return np.logical_or.accumulate(holds)


def _e_or_none(log_e: float) -> float | None:
    return None if math.isnan(log_e) else float(e_value(np.array([log_e]))[0])
