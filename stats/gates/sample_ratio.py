"""The sample ratio: whether the arms receive the shares of units that were declared for them."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaln

from stats.counts.cell import Floats, Ints
from stats.counts.columns import BlockColumns

CONCENTRATION = 1000.0
ROUTER_LAG = 3600
FAR_TAIL = 1e-280


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """A time of constant declaration.

    Attributes:
        start: When it began, epoch seconds.
        end: When the next one began; None for the last.
        share: The declared share of the treatment commit; None where none is declared.
    """

    start: int
    end: int | None
    share: float | None

    def __post_init__(self) -> None:
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"share is {self.share!r}, but it lies in [0, 1] or is null")
        if self.end is not None and self.end < self.start:
            raise ValueError(f"end is {self.end}, but an epoch that starts at {self.start} is over")


@dataclass(frozen=True, kw_only=True)
class Arrivals(BlockColumns):
    """Units of the eligible routes by who served them first, whatever their arm or stratum.

    Attributes:
        block: Start of the block of a unit's first exposure; strictly ascending.
        treatment: Units first served by the treatment commit.
        others: All other units.
    """

    block: Ints
    treatment: Ints
    others: Ints

    def __post_init__(self) -> None:
        if self.treatment.shape != self.block.shape or self.others.shape != self.block.shape:
            raise ValueError("the columns of arrivals are of one length")
        if np.any(np.diff(self.block) <= 0):
            raise ValueError("the blocks of arrivals ascend")


@dataclass(frozen=True, kw_only=True)
class SampleRatio:
    """Evidence against the declared shares, one entry a look.

    Attributes:
        log_e: On both sides; NaN before a share was declared.
        log_too_few: Of too few units of treatment.
    """

    log_e: Floats
    log_too_few: Floats


@dataclass(frozen=True, kw_only=True)
class CountedEpoch:
    """The units that count for one epoch; entry i counts the first i blocks of arrivals.

    Attributes:
        share: The declared share of treatment, inside (0, 1).
        treatment: Units first served by the treatment commit.
        others: All other units.
    """

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
) -> SampleRatio | None:
    """The evidence of both e-processes, products over epochs with a share inside (0, 1).

    Args:
        allocation: The epochs, ascending.
        arrivals: Units by block; a block counts once its grace has passed.
        at: The looks.
        block_seconds: Length of a block.
        grace_seconds: Grace of a block.

    Returns:
        None where no share is declared in any epoch.
    """
    declared = [epoch.start for epoch in allocation if epoch.share is not None]
    if not declared:
        return None
    closed = closed_blocks(
        arrivals, at=at, block_seconds=block_seconds, grace_seconds=grace_seconds
    )
    log_e, log_too_few = np.zeros(at.size), np.zeros(at.size)
    for epoch in counted_epochs(allocation, arrivals, block_seconds=block_seconds):
        n1, n0 = epoch.treatment[closed], epoch.others[closed]
        log_e += log_two_sided(n1, n0, epoch.share)
        log_too_few += log_one_sided(n1, n0, epoch.share)
    # Until its own block closes a deploy may still be recorded: no look before may speak of it.
    known_from = declared[0] - declared[0] % block_seconds + block_seconds + grace_seconds
    log_e[at < known_from] = np.nan
    return SampleRatio(log_e=log_e, log_too_few=log_too_few)


def closed_blocks(
    arrivals: Arrivals, *, at: Ints, block_seconds: int, grace_seconds: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
    """How many blocks of the arrivals are closed at each look."""
    return np.searchsorted(arrivals.block + block_seconds + grace_seconds, at, side="right")


def counted_epochs(
    allocation: tuple[Epoch, ...], arrivals: Arrivals, *, block_seconds: int
) -> list[CountedEpoch]:
    """The units of each epoch with a share inside (0, 1).

    Of every later epoch the first 60 minutes are left out, since routers lag, and so are blocks
    that reach over the end of an epoch.
    """
    counted: list[CountedEpoch] = []
    for number, epoch in enumerate(allocation):
        if epoch.share is None or not 0 < epoch.share < 1:
            continue
        end = math.inf if epoch.end is None else epoch.end
        inside = arrivals.block + block_seconds <= end
        if number:
            inside &= arrivals.block >= epoch.start + ROUTER_LAG
        else:
            inside &= arrivals.block + block_seconds > epoch.start
        counted.append(
            CountedEpoch(
                share=epoch.share,
                treatment=_counted(arrivals.treatment, inside),
                others=_counted(arrivals.others, inside),
            )
        )
    return counted


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


def _counted(units: Ints, inside: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
    """Units inside up to each number of closed blocks."""
    total = np.cumsum(np.where(inside, units, 0))
    return np.concatenate((np.zeros(1), total.astype(np.float64)))
