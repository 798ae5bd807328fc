"""The draw: whether units have the arm that the published draw gives them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from domain.cause import Cause
from domain.draw import FEW_OFF, ONE_OFF_IN
from domain.evidence.results import EvidenceDraw
from stats.counts.cell import Floats, Ints, terms
from stats.counts.pooled_flag import PooledFlag
from stats.gates.gate import Gate, Reading, Units, evidence_reading, no_reading
from stats.gates.sample_ratio import ALARM, log_one_sided
from stats.looks.series import DRAWN, Series
from stats.looks.trace import StageLooks
from stats.sequential.mixture import Mixture

TOLERATED = 1 / ONE_OFF_IN


@dataclass(frozen=True, kw_only=True)
class DrawReading(Reading):
    """Evidence that more than a thousandth of the units have another arm than is drawn for them.

    Attributes:
        beside: Of each flag that is pooled and off the draw itself, the evidence that the arms
            have it unequally; NaN before it is off the draw.
    """

    as_drawn: Floats
    off_draw: Floats
    beside: Mapping[str, Floats]


class Draw(Gate):
    """Units have another arm than the published draw gives them.

    A router that leaks does so, and a share that reacts to outcomes. While they have it, nothing
    but the draw says who gets the change, and two changes that are drawn so are independent: the
    strata of neither are split by the other, nor are those of any other change. A flag that is off
    its draw is held here itself, and holds those beside it whose arms have it unequally.
    """

    cause = Cause.DRAW
    member = "draw_e"
    is_sticky = True
    title = "Units get the arm that is drawn for them"
    why = "units get another arm than the published draw gives them"
    step = (
        "Units do not get the flag that the published draw gives them: look for a router with a"
        " salt, a unit or a share of its own, then close this experiment and register the change"
        " again. Where your own router draws, turn the project's `verified_draws` off."
    )

    def reading(self, looks: StageLooks) -> Reading:
        """The evidence of units off the draw, at all looks of a stage."""
        if looks.series.counted(*DRAWN) is None and not looks.series.pooled:
            return no_reading(looks)
        return _reading(looks.series, looks.trace.at)

    def is_asked(self, series: Series) -> bool:
        """Whether its arms are said to be drawn so; flags beside it may be off the draw later."""
        return series.counted(*DRAWN) is not None

    def detail(self, reading: Reading, look: int, units: Units) -> str | None:
        """How many units have the arm that is drawn for them."""
        del units
        if not isinstance(reading, DrawReading):
            return None
        flags = [name for name, log_e in reading.beside.items() if log_e[look] >= math.log(ALARM)]
        if flags:
            return f"the arms have {', '.join(flags)} unequally, which is not drawn as it should be"
        if (shown := self.shown(reading, look)) is None:
            return None
        verified = shown.verified + shown.mismatched
        return f"{shown.verified:,} of {verified:,} units have it"

    def shown(self, reading: Reading, look: int) -> EvidenceDraw | None:
        """The units as of a look; None where nothing is drawn."""
        if (
            not isinstance(reading, DrawReading)
            or not reading.as_drawn[look] + reading.off_draw[look]
        ):
            return None
        return EvidenceDraw(
            verified=int(reading.as_drawn[look]), mismatched=int(reading.off_draw[look])
        )


def _reading(series: Series, at: Ints) -> DrawReading:
    policy = series.policy
    as_drawn = off_draw = np.zeros(at.size)
    own = np.full(at.size, np.nan)
    if (units := series.counted(*DRAWN)) is not None:
        as_drawn, off_draw = units.sums(*DRAWN, at=at, policy=policy)
        own = log_one_sided(as_drawn, off_draw, 1.0 - TOLERATED)
    beside: dict[str, Floats] = {}
    for flag in series.pooled:
        log_e = _log_beside(flag, at, rho=policy.rho)
        beside[flag.name] = np.fmax(beside.get(flag.name, log_e), log_e)
    evidence = evidence_reading(np.fmax.reduce([own, *beside.values()]), ALARM)
    return DrawReading(
        statistic=evidence.statistic,
        alarm=evidence.alarm,
        as_drawn=as_drawn,
        off_draw=off_draw,
        beside=beside,
    )


def _log_beside(flag: PooledFlag, at: Ints, *, rho: Sequence[float]) -> Floats:
    """The evidence that a flag is off its draw, or that the arms have it unequally: the smaller.

    The second is the test of the target with 'has the flag' as the outcome, as strata are split.
    """
    as_drawn, off_draw = (
        np.concatenate(([0.0], np.cumsum(column))) for column in (flag.as_drawn, flag.off_draw)
    )
    # Later units decide too which flags are read: each counts from its own blocks on.
    suspected = (off_draw > FEW_OFF) & (off_draw * ONE_OFF_IN > as_drawn + off_draw)
    closed = np.searchsorted(flag.closes, at, side="right")
    sums = np.cumsum(terms(flag.n1, flag.x1, flag.n0, flag.x0), axis=1)
    sums = np.concatenate((np.zeros((len(sums), 1)), sums), axis=1)
    joint = np.searchsorted(flag.joint_closes, at, side="right")
    mixture = Mixture(rho=np.tile(rho, (at.size, 1)), log_threshold=np.zeros(at.size))
    log_e = np.minimum(
        log_one_sided(as_drawn[closed], off_draw[closed], 1.0 - TOLERATED),
        mixture.log_e(sums[0, joint], sums[2, joint]),
    )
    return np.where(np.logical_or.accumulate(suspected)[closed], log_e, np.nan)
