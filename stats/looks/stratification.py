"""A stratification: the strata that an experiment's looks are computed in, time after time.

Strata that are pooled at first may be split later; then the past is computed anew in the split ones
(docs/statistics.md, 'Many flags in a build').
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from domain.evidence.results import FlagUnits
from stats.counts.cell import Floats, Ints
from stats.counts.traits import ABSENT, Traits
from stats.looks.block import AnalysisBlocks, analysis_blocks
from stats.looks.control_value import FIRST, ControlValues
from stats.looks.series import Series
from stats.looks.splits import CONFOUNDED, Dependence, Splitting, dependence, kept_lineages
from stats.sequential.mixture import e_value

LAST = 2**62


@dataclass(frozen=True, kw_only=True)
class Population:
    """The units that are compared over a time: those of treatment, and of a value of control.

    Attributes:
        series: The experiment in its finest strata, with these units alone.
        dependence: The evidence that flags depend on the change; None where no flag is known.
        lineage: The code of each stratum's lineage; −1 where its units are left out.
    """

    series: Series
    pooled: Series
    blocks: AnalysisBlocks
    dependence: Dependence | None = None
    lineage: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A time over which looks are computed in the same strata."""

    begin: int
    end: int
    flags: tuple[int, ...]
    series: Series
    blocks: AnalysisBlocks
    population: Population


@dataclass(frozen=True, kw_only=True)
class Split:
    """A flag by which the strata are split."""

    flag: str
    e_value: float
    since: int


@dataclass(frozen=True, kw_only=True)
class Stratification:
    """An experiment and its stages; a single stage where nothing is ever split.

    Attributes:
        control: The values that may be control's; None where it is known.
    """

    series: Series
    stages: tuple[Stage, ...]
    control: ControlValues | None = None

    @property
    def open_blocks(self) -> tuple[AnalysisBlocks, ...]:
        """The analysis blocks whose closings may bring a look, or another stage."""
        pooled, now = self.stages[-1].population.blocks, self.stages[-1].blocks
        return (pooled,) if pooled is now else (pooled, now)

    def stage_at(self, look: int) -> Stage:
        """The stage that computes the looks of a moment."""
        return next(stage for stage in reversed(self.stages) if stage.begin <= look)

    def flag_values(self, look: int) -> tuple[FlagUnits, ...]:
        """The units by value of a flag whose control is not named, as of a look."""
        return self.control.shown(look) if self.control else ()

    def splits(self, look: int) -> tuple[Split, ...]:
        """The flags that split the strata at a look, in order of their names."""
        own = self.stage_at(look)
        return tuple(
            Split(
                flag=self._names[flag],
                e_value=self._e_value(flag, look),
                since=min(stage.begin for stage in self._unbroken(flag, own)),
            )
            for flag in own.flags
        )

    def confounded_by(self, look: int) -> tuple[str, ...]:
        """The flags that depend on the change and do not split the strata."""
        own = self.stage_at(look).flags
        return tuple(
            name
            for flag, name in enumerate(self._names)
            if flag not in own and self._e_value(flag, look) >= CONFOUNDED
        )

    def excluded_units(self, look: int) -> tuple[int, int]:
        """Control's and treatment's units in closed blocks of late lineages, or of other values."""
        lineage = self.stage_at(look).population.lineage
        if not lineage.size:
            return 0, 0
        cells, policy = self.series.target, self.series.policy
        closed = cells.block + policy.block_seconds + policy.closes_after <= look
        left_out = (lineage[cells.stratum] < 0) & closed
        return int(cells.n0[left_out].sum()), int(cells.n1[left_out].sum())

    def is_confounded(self, looks: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether there is such a flag, at each look."""
        reached_by = np.zeros(looks.size, dtype=np.bool_)
        for stage in self.stages if self._names else ():
            dependent = stage.population.dependence
            if dependent is None:
                continue
            closing = np.searchsorted(dependent.at, looks, side="right") - 1
            reached = dependent.log_e >= np.log(CONFOUNDED)
            own = np.flatnonzero((looks >= stage.begin) & (looks < stage.end) & (closing >= 0))
            others = np.setdiff1d(np.arange(len(self._names)), stage.flags)
            reached_by[own] = reached[np.ix_(others, closing[own])].any(axis=0)
        return reached_by

    @property
    def _names(self) -> tuple[str, ...]:
        return () if self.series.traits is None else self.series.traits.names

    def _unbroken(self, flag: int, stage: Stage) -> Sequence[Stage]:
        """The stages up to a stage in which a flag splits the strata without a break."""
        unbroken: list[Stage] = []
        for before in reversed(
            [earlier for earlier in self.stages if earlier.begin <= stage.begin]
        ):
            if flag not in before.flags:
                break
            unbroken.append(before)
        return unbroken

    def _e_value(self, flag: int, look: int) -> float:
        dependent = self.stage_at(look).population.dependence
        if dependent is None:
            return 1.0
        closings = int(np.searchsorted(dependent.at, look, side="right"))
        log_e: Floats = dependent.log_e[flag, closings - 1 : closings]
        return float(e_value(log_e)[0]) if closings else 1.0


def stratified(series: Series) -> Stratification:
    """The stratification of an experiment.

    Without traits the strata are those of the cells.
    """
    if series.traits is None:
        whole = Population(series=series, pooled=series, blocks=analysis_blocks(series))
        return Stratification(series=series, stages=tuple(_stages(whole, FIRST, LAST)))
    control = ControlValues.of(series, series.traits)
    spans = control.spans() if control else [(FIRST, ABSENT)]
    ends = [*(since for since, _ in spans[1:]), LAST]
    stages = [
        stage
        for (begin, value), end in zip(spans, ends, strict=True)
        for stage in _stages(_population(series, series.traits, value), begin, end)
    ]
    return Stratification(series=series, stages=tuple(stages), control=control)


def _population(series: Series, traits: Traits, control: int) -> Population:
    """The units of treatment and of a value of control, by its place; `ABSENT` for all units."""
    compared = np.ones(traits.lineage.size, dtype=np.bool_)
    if control != ABSENT:
        compared = (traits.own == ABSENT) | (traits.own == control)
        codes = np.where(compared, np.arange(compared.size), -1)
        series = replace(series.regrouped(codes), traits=traits)
    lineage = kept_lineages(series, traits)
    pooled = series.regrouped(lineage)
    blocks = analysis_blocks(pooled)
    return Population(
        series=series,
        pooled=pooled,
        blocks=blocks,
        dependence=dependence(series, traits, blocks, threshold=series.policy.split_at),
        lineage=np.where(compared, lineage, -1),
    )


def _stages(population: Population, begin: int, end: int) -> Iterator[Stage]:
    """The stages of a time over which the same units are compared."""
    dependent = population.dependence
    splittings = [Splitting(since=FIRST, flags=())] if dependent is None else dependent.splittings()
    for number, splitting in enumerate(splittings):
        later = splittings[number + 1 :]
        since, until = max(splitting.since, begin), min(later[0].since if later else end, end)
        if since >= until:
            continue
        own = population.pooled
        if dependent is not None and splitting.flags:
            own = population.series.regrouped(dependent.strata(splitting.flags))
        if until <= own.as_of:
            own = replace(own, as_of=until - 1)
        yield Stage(
            begin=since,
            end=until,
            flags=splitting.flags,
            series=own,
            blocks=analysis_blocks(own) if splitting.flags else population.blocks,
            population=population,
        )
