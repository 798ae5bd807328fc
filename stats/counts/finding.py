"""A finding: something learned of a unit later, and from when on it counts."""

import numpy as np

from stats.counts.cell import Ints

NEVER = np.iinfo(np.int64).max


def counted_from(row: Ints, received_at: Ints, *, closings: Ints) -> Ints:
    """When findings begin to count: once they are received and the unit's cell has closed.

    Args:
        row: The number of the closing of the unit's cell; that of none where it has not closed.
        received_at: When the service received it.
        closings: When cells closed.

    Returns:
        Epoch seconds; `NEVER` where the cell has not closed.
    """
    return np.maximum(received_at, np.append(closings, NEVER)[row])
