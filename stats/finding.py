"""A finding: something learned of a unit later, and from when on it counts."""

import numpy as np

from stats.cell import Ints

NEVER = np.iinfo(np.int64).max


def counted_from(row: Ints, received_at: Ints, *, closings: Ints) -> Ints:
    """When findings begin to count: once they are received and the unit's cell has closed.

    Args:
        row: The number of the analysis block that the unit was exposed in.
        received_at: When it was found.
        closings: When the analysis blocks closed.

    Returns:
        Epoch seconds; `NEVER` where the analysis block has not closed.
    """
    return np.maximum(received_at, np.append(closings, NEVER)[row])
