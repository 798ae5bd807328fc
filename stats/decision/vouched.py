"""Vouched outcomes: whether an answer holds on the events that nobody can invent alone."""

from dataclasses import dataclass

import numpy as np

from stats.counts.timeline import Stream, timeline
from stats.looks.policy import Policy
from stats.looks.stratification import Stratification
from stats.looks.trace import Trace
from stats.sequential.mixture import Mixture, e_value


@dataclass(frozen=True, kw_only=True)
class VouchedOutcomes:
    """The outcomes at a look that came with the write key, or signed.

    Attributes:
        conversions: Units with such an outcome.
        of: Units with any outcome.
        e_value: E(0) of them alone.
        holds: Whether they alone show the same answer, at the same level.
    """

    conversions: int
    of: int
    e_value: float
    holds: bool

    @property
    def in_part(self) -> bool:
        """Whether somebody vouches for some outcomes, and nobody for others."""
        return 0 < self.conversions < self.of


def vouched_outcomes(strata: Stratification, now: Trace) -> VouchedOutcomes | None:
    """The vouched outcomes at a look; None where that is not read.

    The test is the one of the target, in the same cells of the same units.

    Args:
        strata: The experiment.
        now: Its trace at the look, one entry.
    """
    look = int(now.at[0])
    stage = strata.stage_at(look)
    series, blocks = stage.series, stage.blocks
    if series.vouched is None:
        return None
    delay = series.policy.window_seconds + series.policy.grace_seconds
    closed = int(np.searchsorted(blocks.ends + delay, look, side="right"))
    line = timeline(
        [
            Stream(
                cells=series.vouched,
                cell_end=blocks.end_of(series.vouched.stratum, series.vouched.block),
                ends=blocks.ends[:closed],
                delay=delay,
            )
        ]
    )
    row = np.array([closed - 1])
    totals = line.totals.gathered(row)
    mixture = _mixture(series.policy, float(np.append(line.factor, 1.0)[row][0]))
    log_e = mixture.log_e(totals.S, totals.V0)
    same_side = totals.S[0] * now.totals.S[0] > 0
    return VouchedOutcomes(
        conversions=int(np.append(line.x1 + line.x0, 0)[row][0]),
        of=int(now.x1[0] + now.x0[0]),
        e_value=float(e_value(log_e)[0]),
        holds=bool(log_e[0] >= series.policy.log_threshold and same_side),
    )


def _mixture(policy: Policy, factor: float) -> Mixture:
    return Mixture(
        rho=np.array([policy.rho]) * factor,
        log_threshold=np.array([policy.log_threshold]),
    )
