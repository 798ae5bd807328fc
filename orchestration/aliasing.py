"""Aliasing: what else differs between the arms, when a change cannot be told from it."""

from collections.abc import Iterable, Mapping

from storage.evidence import CellRow

TIME = "time"


def aliased_with(cells: Iterable[CellRow], changes: Mapping[str, frozenset[str]]) -> list[str]:
    """Returns the other changes by which the arms differ, or time where there are none.

    Args:
        cells: The closed cells that were looked at.
        changes: The changes that each stratum carries besides the one under test.
    """
    treatment: list[frozenset[str]] = []
    control: list[frozenset[str]] = []
    for cell in cells:
        carried = changes.get(cell.stratum, frozenset())
        if cell.n1:
            treatment.append(carried)
        if cell.n0:
            control.append(carried)
    if not treatment or not control:
        return [TIME]
    only_treatment = frozenset.intersection(*treatment) - frozenset.union(*control)
    only_control = frozenset.intersection(*control) - frozenset.union(*treatment)
    return sorted(only_treatment | only_control) or [TIME]
