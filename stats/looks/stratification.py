"""A stratification: the strata that an experiment's looks are computed in, time after time.

Strata that are pooled at first may be split later; then the past is computed anew in the split ones
(docs/statistics.md, 'Many flags in a build').
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stats.counts.cell import Floats, Ints
from stats.counts.traits import Traits
from stats.looks.block import AnalysisBlocks, analysis_blocks
from stats.looks.series import Series
from stats.looks.splits import CONFOUNDED, Dependence, dependence, kept_lineages
from stats.sequential.mixture import e_value

FIRST, LAST = -(2**62), 2**62


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A time over which looks are computed in the same strata.

    Attributes:
        begin: The first moment of its looks.
        end: The moment after the last.
        flags: The flags that split the strata, by their place among the traits.
        series: The experiment in these strata, known up to the end.
    """

    begin: int
    end: int
    flags: tuple[int, ...]
    series: Series
    blocks: AnalysisBlocks


@dataclass(frozen=True, kw_only=True)
class Split:
    """A flag by which the strata are split.

    Attributes:
        e_value: The evidence that the arms carry its values unequally.
        since: From which look on.
    """

    flag: str
    e_value: float
    since: int


@dataclass(frozen=True, kw_only=True)
class Stratification:
    """An experiment and its stages; a single stage where nothing is ever split.

    Attributes:
        dependence: The evidence that flags depend on the change; None where no flag is known.
    """

    series: Series
    stages: tuple[Stage, ...]
    dependence: Dependence | None = None

    @property
    def open_blocks(self) -> tuple[AnalysisBlocks, ...]:
        """The analysis blocks whose closings may bring a look, or another stage."""
        pooled, now = self.stages[0].blocks, self.stages[-1].blocks
        return (pooled,) if len(self.stages) == 1 else (pooled, now)

    def stage_at(self, look: int) -> Stage:
        """The stage that computes the looks of a moment."""
        return next(stage for stage in reversed(self.stages) if stage.begin <= look)

    def splits(self, look: int) -> tuple[Split, ...]:
        """The flags that split the strata at a look, in order of their names."""
        if self.dependence is None:
            return ()
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
        if self.dependence is None:
            return ()
        own = self.stage_at(look).flags
        return tuple(
            name
            for flag, name in enumerate(self._names)
            if flag not in own and self._e_value(flag, look) >= CONFOUNDED
        )

    def excluded_units(self, look: int) -> tuple[int, int]:
        """The units of closed blocks whose lineages came after the first ones that are compared.

        Returns:
            Those of control, and of treatment.
        """
        if self.dependence is None:
            return 0, 0
        cells, policy = self.series.target, self.series.policy
        closed = cells.block + policy.block_seconds + policy.closes_after <= look
        left_out = (self.dependence.lineage[cells.stratum] < 0) & closed
        return int(cells.n0[left_out].sum()), int(cells.n1[left_out].sum())

    def is_confounded(self, looks: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether there is such a flag, at each look."""
        reached_by = np.zeros(looks.size, dtype=np.bool_)
        if self.dependence is None or not len(self._names):
            return reached_by
        closing = np.searchsorted(self.dependence.at, looks, side="right") - 1
        reached = self.dependence.log_e >= np.log(CONFOUNDED)
        for stage in self.stages:
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
        if self.dependence is None:
            return 1.0
        closings = self.dependence.closings_before(look)
        log_e: Floats = self.dependence.log_e[flag, closings - 1 : closings]
        return float(e_value(log_e)[0]) if closings else 1.0


def stratified(series: Series) -> Stratification:
    """The stratification of an experiment.

    Without traits the strata are those of the cells.
    """
    if series.traits is None:
        whole = Stage(
            begin=FIRST, end=LAST, flags=(), series=series, blocks=analysis_blocks(series)
        )
        return Stratification(series=series, stages=(whole,))
    return _by_need(series, series.traits, series.policy.split_at)


def _by_need(series: Series, traits: Traits, threshold: float) -> Stratification:
    lineages = series.regrouped(kept_lineages(series, traits))
    blocks = analysis_blocks(lineages)
    dependent = dependence(series, traits, blocks, threshold=threshold)
    splittings = dependent.splittings()
    stages: list[Stage] = []
    for number, splitting in enumerate(splittings):
        later = splittings[number + 1 :]
        end = later[0].since if later else LAST
        own = (
            lineages if not splitting.flags else series.regrouped(dependent.strata(splitting.flags))
        )
        if end <= own.as_of:
            own = replace(own, as_of=end - 1)
        stages.append(
            Stage(
                begin=splitting.since if number else FIRST,
                end=end,
                flags=splitting.flags,
                series=own,
                blocks=blocks if number == 0 else analysis_blocks(own),
            )
        )
    return Stratification(series=series, stages=tuple(stages), dependence=dependent)
