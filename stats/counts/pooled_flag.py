"""Flags that are pooled over: how many units have the arm that the published draw gives them."""

from dataclasses import dataclass

from stats.counts.cell import ArmCounts, Ints


@dataclass(frozen=True, kw_only=True)
class PooledFlag(ArmCounts):
    """A flag that is not drawn as it is said to be, beside an experiment that is pooled over it.

    Attributes:
        closes: When each block of the flag's units closes, ascending, epoch seconds.
        as_drawn: Units of the block that have the arm which is drawn for them.
        joint_closes: When units of both close, ascending, epoch seconds; an entry a moment below.
        n1: Of these, units of the experiment's treatment; `n0` of its control.
        x1: Of those, units of the flag's treatment; `x0` likewise.
    """

    name: str
    closes: Ints
    as_drawn: Ints
    off_draw: Ints
    joint_closes: Ints
