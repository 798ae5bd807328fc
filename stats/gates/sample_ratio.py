"""The sample ratio: whether the arms receive the shares of units that were declared for them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from msgspec import structs
from scipy.special import betainc, betaln

from domain.cause import Cause, GateCheck
from domain.evidence.breach import ARRIVAL
from stats.counts.arrivals import Arrivals, Epoch, counted_blocks
from stats.counts.cell import Floats, Ints
from stats.counts.columns import BlockColumns
from stats.gates.gate import Flags, Gate, Reading, Units
from stats.guardrails.guardrail import Watch
from stats.looks.series import Series
from stats.looks.trace import StageLooks

ALARM = 1000.0
CONCENTRATION = 1000.0
FAR_TAIL = 1e-280


@dataclass(frozen=True, kw_only=True)
class SampleRatioReading(Reading):
    """Evidence against the declared shares, an entry a look.

    The statistic is its logarithm on both sides; NaN before a share was declared.
    """

    log_too_few: Floats
    is_masked: Flags

    def unless(self, masked: Flags) -> Self:
        """The same reading, which alarms at none of these looks."""
        return replace(
            self,
            alarm=self.alarm & ~masked,
            log_too_few=np.where(masked, 0.0, self.log_too_few),
            is_masked=masked,
        )


class SampleRatio(Gate):
    """The arms do not receive the shares of units that were declared for them."""

    cause = Cause.SAMPLE_RATIO
    member = "sample_ratio_e"
    is_sticky = True
    title = "Traffic is split as declared"
    why = "the arms do not get the shares that were declared"
    step = (
        "The arms do not get the shares that you declared: check the router's weights and the"
        " allocation in your deploys."
    )

    def readings(self, stages: Sequence[StageLooks]) -> Sequence[SampleRatioReading]:
        """The readings of several experiments, each at all looks of a stage."""
        return [_reading(looks.series, looks.trace.at) for looks in stages]

    def check(self, reading: Reading, look: int, *, holds: bool, units: Units) -> GateCheck:
        """The gate as of a look; not known while the unit is another than the router's."""
        check = super().check(reading, look, holds=holds, units=units)
        is_masked = isinstance(reading, SampleRatioReading) and bool(reading.is_masked[look])
        return structs.replace(check, state="not_known") if is_masked and not holds else check

    def detail(self, reading: Reading, look: int, units: Units) -> str | None:
        """How many units got the change, where the shares are others."""
        return f"{units[0]:,} of {units[1]:,} units got the change" if reading.alarm[look] else None


def arrival_watch(series: Series, reading: Reading, at: Ints) -> Watch | None:
    """The guardrail `arrival`: too few units of treatment; None where no share is declared."""
    if not isinstance(reading, SampleRatioReading) or not _declared(series.allocation or ()):
        return None
    return Watch(
        metric=ARRIVAL,
        threshold=ALARM,
        awaited=False,
        at=at,
        log_e=reading.log_too_few,
        lift=np.full(at.size, np.nan),
        log_excluded=np.full(at.size, -np.inf),
    )


def _reading(series: Series, at: Ints) -> SampleRatioReading:
    if series.arrivals is None or not _declared(series.allocation or ()):
        nothing = np.full(at.size, np.nan)
        return SampleRatioReading(
            statistic=nothing, alarm=nothing > 0, log_too_few=nothing, is_masked=nothing > 0
        )
    return sample_ratio(
        series.allocation or (),
        series.arrivals,
        at=at,
        block_seconds=series.policy.block_seconds,
        grace_seconds=series.policy.grace_seconds,
    )


@dataclass(frozen=True, kw_only=True)
class CountedEpoch:
    """The units that count for an epoch; entry i counts the first i blocks. 0 < share < 1."""

    share: float
    treatment: Floats
    others: Floats


def sample_ratio(
    allocation: tuple[Epoch, ...],
    arrivals: Arrivals,
    *,
    at: Ints,
    block_seconds: int,
    grace_seconds: int,
) -> SampleRatioReading:
    """The evidence of both e-processes, products over epochs with a share inside (0, 1).

    Args:
        allocation: The epochs, ascending; at least an epoch declares a share.
    """
    closed = closed_blocks(
        arrivals, at=at, block_seconds=block_seconds, grace_seconds=grace_seconds
    )
    log_e, log_too_few, _ = log_evidence(
        allocation, arrivals, closed=closed, block_seconds=block_seconds
    )
    if arrivals.nameless is not None:
        # Units of an unknown build may be of either arm, or of neither: they are evidence only
        # where the known builds do not keep their shares among each other.
        known = replace(arrivals, nameless=None)
        bound = log_evidence(allocation, known, closed=closed, block_seconds=block_seconds).max(0)
        log_e, log_too_few = np.minimum(log_e, bound), np.minimum(log_too_few, bound)
    # Until its own block closes a deploy may still be recorded: no look before may speak of it.
    declared = _declared(allocation)[0]
    known_from = declared - declared % block_seconds + block_seconds + grace_seconds
    log_e[at < known_from] = np.nan
    return SampleRatioReading(
        statistic=log_e,
        alarm=log_e >= math.log(ALARM),
        log_too_few=log_too_few,
        is_masked=np.zeros(at.size, dtype=np.bool_),
    )


def _declared(allocation: Sequence[Epoch]) -> list[int]:
    return [epoch.start for epoch in allocation if epoch.share is not None]


def closed_blocks(
    arrivals: BlockColumns, *, at: Ints, block_seconds: int, grace_seconds: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
    """How many blocks of the arrivals are closed at each look."""
    return np.searchsorted(arrivals.block + block_seconds + grace_seconds, at, side="right")


def counted_epochs(
    allocation: tuple[Epoch, ...],
    arrivals: Arrivals,
    *,
    block_seconds: int,
    as_of: int | None = None,
) -> list[CountedEpoch]:
    """The units of each epoch with a share inside (0, 1), lag hours left out.

    Args:
        as_of: After how many blocks it is asked which names count; None for each number itself.
    """
    counting = arrivals.counting_names(allocation, block_seconds=block_seconds)
    if as_of is not None:
        counting = counting[as_of]
    epochs: list[CountedEpoch] = []
    for share, inside in counted_blocks(allocation, arrivals.block, block_seconds=block_seconds):
        treatment, others = arrivals.counted(inside, counting)
        epochs.append(CountedEpoch(share=share, treatment=treatment, others=others))
    return epochs


def log_evidence(
    allocation: tuple[Epoch, ...], arrivals: Arrivals, *, closed: Ints, block_seconds: int
) -> Floats:
    """Logarithms of the evidence of other shares, too few and too many units: array (3, looks)."""
    log_e = np.zeros((3, closed.size))
    for epoch in counted_epochs(allocation, arrivals, block_seconds=block_seconds):
        n1, n0, share = epoch.treatment[closed], epoch.others[closed], epoch.share
        log_e[0] += log_two_sided(n1, n0, share)
        log_e[1] += log_one_sided(n1, n0, share)
        log_e[2] += log_one_sided(n0, n1, 1.0 - share)
    return log_e


def log_two_sided(n1: Floats, n0: Floats, share: float) -> Floats:
    """Logarithm of B(kπ+N₁, k(1−π)+N₀)/B(kπ, k(1−π)) / (π^N₁(1−π)^N₀), k = 1000.

    Lindon & Malek, Anytime-valid inference for multinomial count data, NeurIPS 2022.
    """
    a, b = CONCENTRATION * share, CONCENTRATION * (1.0 - share)
    null = n1 * math.log(share) + n0 * math.log1p(-share)
    return betaln(a + n1, b + n0) - betaln(a, b) - null


def log_one_sided(n1: Floats, n0: Floats, share: float) -> Floats:
    """Logarithm of the same likelihood ratio, averaged evenly over the shares below π.

    E = ∫₀^π θ^N₁(1−θ)^N₀ dθ/π / (π^N₁(1−π)^N₀), where the integral is
    B(N₁+1, N₀+1)·I_π(N₁+1, N₀+1).
    Even over the shares rather than concentrated, since it is for builds that die. Far on the
    other side, where I_π has no logarithm, the first term of its series bounds E from below.
    """
    null = n1 * math.log(share) + n0 * math.log1p(-share)
    below = betainc(n1 + 1.0, n0 + 1.0, share)
    near = below > FAR_TAIL
    whole = betaln(n1 + 1.0, n0 + 1.0) + np.log(np.where(near, below, 1.0))
    tail = math.log1p(-share) - np.log(n1 + 1.0)
    return np.where(near, whole - math.log(share) - null, tail)
