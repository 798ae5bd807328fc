"""Aliasing: what else differs between the arms, when a change cannot be separated from it."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from storage.verdicts.packed_cells import Columns

TIME = "time"


def aliased_with(
    cells: Columns, strata: Sequence[str], changes: Mapping[str, frozenset[str]], *, before: int
) -> list[str]:
    """Returns the other changes by which the arms differ, or time where there are none.

    Args:
        before: Where the blocks begin that were not looked at yet, in seconds since the epoch.
    """
    looked_at = bisect_left(cells["block"], before)
    treatment = _carried(cells["stratum"][:looked_at], cells["n1"], strata, changes)
    control = _carried(cells["stratum"][:looked_at], cells["n0"], strata, changes)
    if not treatment or not control:
        return [TIME]
    only_treatment = frozenset.intersection(*treatment) - frozenset.union(*control)
    only_control = frozenset.intersection(*control) - frozenset.union(*treatment)
    return sorted(only_treatment | only_control) or [TIME]


def _carried(
    places: Iterable[int],
    units: Iterable[int],
    strata: Sequence[str],
    changes: Mapping[str, frozenset[str]],
) -> list[frozenset[str]]:
    """Returns the changes of the strata in which an arm has units."""
    exposed = {place for place, count in zip(places, units, strict=False) if count}
    return [changes.get(strata[place], frozenset()) for place in sorted(exposed)]
