"""The calendar: when the blocks of an experiment close, for the oracle's own reading."""

from dataclasses import dataclass

from storage.pipeline.moments import microseconds
from tests.oracle.frozen import FrozenExperiment

SECOND = 1_000_000
BLOCK = 300 * SECOND


def block_of(at: int) -> int:
    """Returns the start of the block that a moment is in."""
    return at - at % BLOCK


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """When the blocks of an experiment close; all in microseconds since the epoch."""

    start: int
    bound_at: int
    grace: int
    horizon: int
    until: int

    @classmethod
    def of(cls, experiment: FrozenExperiment, *, until: int) -> "Calendar":
        start = microseconds(experiment.starts_at)
        return cls(
            start=start,
            bound_at=microseconds(experiment.bound_at),
            grace=experiment.policy["grace_seconds"] * SECOND,
            horizon=start + experiment.policy["horizon_seconds"] * SECOND,
            until=until,
        )

    def closes(self, block: int, window: int = 0) -> int:
        """Returns when a block's exposures close, or its outcomes within a window."""
        return block + BLOCK + window + self.grace

    def has_closed(self, block: int, window: int = 0) -> bool:
        """Tells whether that has happened by the end of the reading."""
        return self.closes(block, window) <= self.until

    def known_at(self, block: int) -> int:
        """Returns up to when what is recorded counts for a block."""
        return max(self.closes(block), self.bound_at)
