"""Moments: the pipeline's times, whole microseconds since the epoch, and those of the store."""

from datetime import UTC, datetime, timedelta

from storage.schema.encoding import BLOCK

SECOND = 1_000_000
# Earlier and later than any time that is ever compared.
EARLIEST, LATEST = -(2**62), 2**62

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """Returns whole microseconds since the epoch: the store's own grain of time."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(epoch_microseconds: int) -> datetime:
    """Returns the UTC time of whole microseconds since the epoch."""
    return _EPOCH + epoch_microseconds * _MICROSECOND


def block_of(moment: int) -> int:
    """Returns the start of the block that holds a moment."""
    return moment - moment % BLOCK
