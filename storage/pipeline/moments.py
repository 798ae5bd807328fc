"""Moments: the pipeline's times, whole microseconds since the epoch, and those of the store."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from storage.schema.encoding import BLOCK, EPOCH, MICROSECOND

SECOND = 1_000_000
# Earlier and later than any time that is ever compared.
EARLIEST, LATEST = -(2**62), 2**62


def microseconds(moment: datetime) -> int:
    """Returns whole microseconds since the epoch: the store's own grain of time."""
    return (moment - EPOCH) // MICROSECOND


def moment_of(epoch_microseconds: int) -> datetime:
    """Returns the UTC time of whole microseconds since the epoch."""
    return EPOCH + epoch_microseconds * MICROSECOND


def block_of(moment: int) -> int:
    """Returns the start of the block that holds a moment."""
    return moment - moment % BLOCK


@dataclass(frozen=True, kw_only=True)
class Days:
    """Some days of exposure, in UTC, both ends included."""

    first: date
    last: date

    @property
    def from_block(self) -> int:
        """Their first moment, in microseconds since the epoch."""
        return _midnight(self.first)

    @property
    def to_block(self) -> int:
        """The first moment after them."""
        return _midnight(self.last + timedelta(days=1))

    @property
    def each(self) -> list[date]:
        """Each of them, in order."""
        count = (self.last - self.first).days + 1
        return [self.first + timedelta(days=number) for number in range(count)]


def _midnight(day: date) -> int:
    return microseconds(datetime.combine(day, time(), tzinfo=UTC))
