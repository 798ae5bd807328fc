"""A shortfall: treatment's actual share where too few units arrive, and whether it fell."""

import math
from dataclasses import dataclass, replace

import numpy as np

from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.cell import Floats, Ints
from stats.gates.sample_ratio import (
    CountedEpoch,
    closed_blocks,
    counted_epochs,
    log_evidence,
    log_one_sided,
)
from stats.sequential.harm import log_harm

FALL_ALARM = 1000.0
# Mixture precisions for falls by 20 % and 50 % on the scale of log odds, as for the target's lifts.
FALL_RHO_DAY, FALL_RHO_FAST = 25.0, 4.0
# An epoch is parted where its first, and where its last, 2^-k of its units came.
PARTINGS = 16
# Below this part of the declared share hardly anything arrives: no mis-set weight looks like that.
HARDLY_ANY = 0.1


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """Treatment's share of arrivals as of a look at which `arrival` is breached.

    Attributes:
        declared: The declared share of the epoch that shows the shortfall most.
        actual: The share of its units that treatment served first.
        fell: Whether treatment's share fell within an epoch.
    """

    declared: float
    actual: float
    fell: bool

    @property
    def steady(self) -> bool:
        """Whether a mis-set weight explains it as well as a build that dies.

        So does a router that sends treatment nothing at all.
        """
        return not self.fell and (self.actual >= HARDLY_ANY * self.declared or not self.actual)


def shortfall(
    allocation: tuple[Epoch, ...],
    arrivals: Arrivals,
    *,
    at: Ints,
    block_seconds: int,
    grace_seconds: int,
    breached_at: int,
) -> Shortfall:
    """The shortfall at the last look of those up to now.

    Args:
        allocation: The epochs, ascending; at least an epoch has a share inside (0, 1).
        breached_at: When `arrival` was first breached: a fall is remembered from then on.
    """
    closed = closed_blocks(
        arrivals, at=at, block_seconds=block_seconds, grace_seconds=grace_seconds
    )
    now, known = closed[-1:], replace(arrivals, nameless=None)
    _, too_few, too_many = log_evidence(allocation, known, closed=now, block_seconds=block_seconds)
    if too_few > too_many:
        arrivals = known
    epochs = counted_epochs(
        allocation, arrivals, block_seconds=block_seconds, as_of=int(closed[-1])
    )
    counts = [(epoch.treatment[now], epoch.others[now], epoch.share) for epoch in epochs]
    clearest = int(np.argmax([float(log_one_sided(*counted)[0]) for counted in counts]))
    treatment, others = float(counts[clearest][0][0]), float(counts[clearest][1][0])
    fallen = np.logaddexp.reduce([log_fall(epoch, closed) for epoch in epochs]) - math.log(
        len(epochs)
    )
    return Shortfall(
        declared=epochs[clearest].share,
        actual=treatment / max(treatment + others, 1.0),
        fell=bool(np.any((fallen >= math.log(FALL_ALARM)) & (at >= breached_at))),
    )


def log_fall(epoch: CountedEpoch, closed: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> Floats:
    """Logarithm of the evidence that treatment's share fell within an epoch, at each look.

    The test for harm (docs/statistics.md, 'Guardrails') on later against earlier units, with
    `served by treatment` as the outcome, averaged over the partings of the epoch. It asks nothing
    of the declared share: a weight that is mis-set from the beginning is no fall, and neither is
    a share that is set right later.
    """
    units = epoch.treatment + epoch.others
    whole, whole_treatment = units[closed], epoch.treatment[closed]
    log_e: list[Floats] = []
    parts = 0.5 ** np.arange(1, PARTINGS + 1)
    for part in (*parts, *(1.0 - parts[1:])):
        parting = np.minimum(np.searchsorted(units, part * whole, side="left"), closed)
        n0, x0 = units[parting], epoch.treatment[parting]
        n1, x1 = whole - n0, whole_treatment - x0
        n, m = np.maximum(whole, 2.0), whole_treatment
        fall = (x0 * n1 - x1 * n0) / n
        variance = n1 * n0 / n * m * (n - m) / (n * (n - 1.0))
        log_e.append(log_harm(fall, variance, np.tile((FALL_RHO_DAY, FALL_RHO_FAST), (n.size, 1))))
    return np.logaddexp.reduce(log_e) - math.log(len(log_e))
