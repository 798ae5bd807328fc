"""The value of a change: dollars a day once every unit has it."""

from domain.document import Interval
from domain.evidence.document import ValueRange


def value_range(interval: Interval | None, dollars: float | None) -> ValueRange | None:
    """Returns the range of a change's value in dollars a day, by the interval of its lift.

    Returns:
        None where either is unknown.
    """
    if interval is None or dollars is None:
        return None
    low, high = sorted(end * dollars for end in interval)
    return ValueRange(low=low, high=high)
