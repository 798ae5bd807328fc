"""Marginal interaction: whether the relative effect differs between the values of a flag."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stats.counts.cell import Ints
from stats.counts.timeline import Stream, timeline
from stats.gates.interaction import Interaction, interaction
from stats.looks.block import AnalysisBlocks
from stats.looks.series import Series
from stats.looks.splits import Dependence
from stats.looks.stratification import Stratification
from stats.sequential.mixture import Mixture


@dataclass(frozen=True, kw_only=True)
class MarginalInteractions:
    """The interaction in each of several tables of the same units.

    Attributes:
        at: The closings of each table's target.
        tables: The counts at each closing.
    """

    at: Sequence[Ints]
    tables: Sequence[Interaction]

    def gathered(self, looks: Ints) -> Interaction:
        """What all tables together show at each look.

        The evidence is the largest of any table, divided by their number: Bonferroni.
        """
        interactions = [
            table.gathered(np.searchsorted(at, looks, side="right") - 1)
            for at, table in zip(self.at, self.tables, strict=True)
        ]
        log_e = np.stack([marginal.log_e for marginal in interactions])
        compared = ~np.isnan(log_e)
        count = compared.sum(axis=0)
        largest = np.where(compared, log_e, -np.inf).max(axis=0)
        return Interaction(
            log_e=np.where(count > 0, largest - np.log(np.maximum(count, 1)), np.nan),
            rises=_all(compared, [marginal.rises for marginal in interactions]),
            falls=_all(compared, [marginal.falls for marginal in interactions]),
        )


def _all(
    compared: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    holds: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whether something holds in every table in which strata can be compared."""
    return compared.any(axis=0) & np.all(~compared | np.stack(holds), axis=0)


def marginal_interactions(strata: Stratification) -> MarginalInteractions | None:
    """The interaction between lineages, and between the values of each flag; never of segments.

    Returns:
        None where no flag is known, or the target is continuous.
    """
    dependent, pooled = strata.dependence, strata.stages[0].blocks
    if (
        dependent is None
        or not dependent.classes.shape[0]
        or strata.series.target.values is not None
    ):
        return None
    tables = [_table(strata.series, dependent, pooled, flags=(), classes=dependent.lineage)]
    tables += [
        _table(strata.series, dependent, pooled, flags=(flag,), classes=classes)
        for flag, classes in enumerate(dependent.classes)
        if not dependent.is_segment[flag]
    ]
    return MarginalInteractions(at=[at for at, _ in tables], tables=[table for _, table in tables])


def _table(
    series: Series,
    dependent: Dependence,
    blocks: AnalysisBlocks,
    *,
    flags: Sequence[int],
    classes: Ints,
) -> tuple[Ints, Interaction]:
    """The closings of one table, and the interaction that each shows."""
    code, policy = dependent.strata(flags), series.policy
    strata = int(code.max(initial=-1)) + 1
    lineage_of, class_of = np.zeros(strata, dtype=np.int64), np.zeros(strata, dtype=np.int64)
    lineage_of[code[code >= 0]], class_of[code[code >= 0]] = (
        dependent.lineage[code >= 0],
        classes[code >= 0],
    )
    cells = series.target.regrouped(code)
    closes_after = policy.closes_after
    closed = int(np.searchsorted(blocks.ends, series.as_of - closes_after, side="right"))
    line = timeline(
        [
            Stream(
                cells=cells,
                cell_end=blocks.end_of(lineage_of[cells.stratum], cells.block),
                ends=blocks.ends[:closed],
                closes_after=closes_after,
            )
        ]
    )
    by_class = replace(line.cells, stratum=class_of[line.cells.stratum])
    mixture = Mixture(
        rho=np.tile(policy.rho, (closed, 1)),
        log_threshold=np.zeros(closed),
    )
    return line.at, interaction(by_class, first_row=0, mixture=mixture)
