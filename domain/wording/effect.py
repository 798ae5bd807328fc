"""The effect of a change in one line: the best estimate and its moment, the same in every face."""

from collections.abc import Mapping
from typing import Any

from domain.measure import measure_of

_MOMENTS = {"open": "so far", "at_decision": "at the decision"}


def effect_line(document: Mapping[str, Any]) -> str | None:
    """Returns the best estimate of an evidence document's effect, with its moment.

    Args:
        document: The evidence document.

    Returns:
        None where nothing was compared, the comparison is not fair, or an earlier release
        published the document.
    """
    effect = document.get("effect")
    if effect is None or effect["estimate"] is None:
        return None
    measure, estimate = measure_of(document), effect["estimate"]
    relative = measure.relative(estimate)
    size = f"{measure.difference(estimate)}{f' ({relative})' if relative else ''}"
    return f"{size} {_MOMENTS[effect['basis']]}"
