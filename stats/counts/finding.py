"""Findings: something learned of units later, and from when on it counts."""

from dataclasses import dataclass

import numpy as np

from stats.counts.cell import Ints
from stats.counts.columns import BlockColumns

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class Findings(BlockColumns):
    """Units of which something was learned after their exposure; an entry a unit.

    Attributes:
        at: When it was received.
    """

    block: Ints
    stratum: Ints
    at: Ints


@dataclass(frozen=True, kw_only=True)
class LateUnits(Findings):
    """Units whose outcome came too late to count; `arm` is 1 for treatment, 0 for control."""

    arm: Ints


def counted_from(row: Ints, received_at: Ints, *, closings: Ints) -> Ints:
    """When findings begin to count: once they are received and the unit's cell has closed.

    Args:
        row: The number of the closing of the unit's cell; that of none where it has not closed.

    Returns:
        Epoch seconds; `NEVER` where the cell has not closed.
    """
    return np.maximum(received_at, np.append(closings, NEVER)[row])
