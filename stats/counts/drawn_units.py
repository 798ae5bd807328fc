"""Drawn units: how many have the arm that the published draw gives them, also of other flags."""

from dataclasses import dataclass

from stats.counts.cell import ArmCounts, Ints
from stats.counts.columns import BlockColumns


@dataclass(frozen=True, kw_only=True)
class DrawnUnits(BlockColumns):
    """Units of the arms by whether they have the arm that is drawn, an entry a block.

    Attributes:
        block: Start of the block of their exposure, ascending.
        as_drawn: Units that have it.
        off_draw: Units that have another.
    """

    block: Ints
    as_drawn: Ints
    off_draw: Ints


@dataclass(frozen=True, kw_only=True)
class PooledFlag(ArmCounts):
    """A flag that is not drawn as it is said to be, beside an experiment that is pooled over it.

    Attributes:
        name: The flag.
        closes: When each block of the flag's units closes, ascending, epoch seconds.
        as_drawn: Units of the block that have the arm which is drawn for them.
        off_draw: Units of it that have another.
        joint_closes: When units of both close, ascending, epoch seconds; an entry a moment below.
        n1: Of these, units of the experiment's treatment.
        x1: Of those, units of the flag's treatment.
        n0: Units of the experiment's control.
        x0: Of those, units of the flag's treatment.
    """

    name: str
    closes: Ints
    as_drawn: Ints
    off_draw: Ints
    joint_closes: Ints
