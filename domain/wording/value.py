"""The value of a change: dollars a day once every unit has it."""

from collections.abc import Mapping, Sequence
from typing import Any

from domain.comparison import is_fair


def value_range(
    contract: Mapping[str, Any],
    document: Mapping[str, Any],
    *,
    interval: Sequence[float] | None,
    units_per_day: float | None,
) -> dict[str, float] | None:
    """Returns the range of a change's value in dollars a day, by the interval of its lift.

    Args:
        interval: Of treatment minus control, a unit.
        units_per_day: Units of both arms a day over the last 7 days, measured
            or not.

    Returns:
        None where no value is known, or where the arms differ by more than the change.
    """
    value = document["policy"]["value_per_conversion"]
    if value is None or interval is None or units_per_day is None:
        return None
    if not is_fair(contract, document):
        return None
    low, high = sorted(end * units_per_day * value for end in interval)
    return {"low": low, "high": high}
