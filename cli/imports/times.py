"""The reader of times: ISO 8601, a format of the map, or seconds since the Unix epoch."""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo

from cli.imports.cells import is_null
from cli.imports.faults import CellError
from cli.imports.map import Times

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?", re.ASCII)
# As BigQuery and others write it.
_UTC_WORDS = (" UTC", " GMT", " Z")

# Microseconds of each unit of an epoch time.
_MICROSECONDS = {
    "s": Decimal(1_000_000),
    "ms": Decimal(1000),
    "us": Decimal(1),
    "ns": Decimal("0.001"),
}
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# 2000 to 2100: numbers of seconds and of milliseconds in these years do not overlap.
_FIRST = Decimal(946_684_800) * 1_000_000
_END = Decimal(4_133_980_800) * 1_000_000


class TimeReader:
    """Reads the cells of one column of times.

    Attributes:
        detected: The unit of epoch times that the cells themselves told, None where the map names
            it or none is an epoch time.
    """

    def __init__(self, times: Times) -> None:
        self.detected: str | None = None
        self._times = times
        self._zone: tzinfo = UTC if times.zone == "UTC" else ZoneInfo(times.zone)
        self._offsets: dict[int, timedelta | None] = {}

    def read(self, cell: object) -> datetime | None:
        """Returns a cell as a time in UTC, None where it is empty.

        Raises:
            CellError: It is no time by the map.
        """
        if isinstance(cell, datetime):
            return self._in_utc(cell)
        if is_null(cell):
            return None
        if isinstance(cell, str):
            return self._text(cell.strip())
        if isinstance(cell, date):
            return self._in_utc(datetime.combine(cell, time()))
        if isinstance(cell, int | float | Decimal) and not isinstance(cell, bool):
            return self._since_epoch(Decimal(str(cell)))
        raise CellError("is no time")

    def _text(self, text: str) -> datetime:
        if self._times.format is not None:
            return self._in_utc(_formatted(text, self._times.format))
        if self._times.unit is not None or _NUMBER.fullmatch(text):
            if not _NUMBER.fullmatch(text):
                raise CellError(f"is no number of {UNIT_NAMES[self._times.unit or 's']}")
            return self._since_epoch(Decimal(text))
        for word in _UTC_WORDS:
            if text.endswith(word):
                text = text.removesuffix(word) + "+00:00"
        try:
            stamp = datetime.fromisoformat(text)
        except ValueError:
            raise CellError(
                "is no ISO 8601 time such as 2026-10-25T01:00:00Z; name another form by format in"
                ' [times], such as format = "%m/%d/%Y %H:%M"'
            ) from None
        return self._in_utc(stamp)

    def _since_epoch(self, number: Decimal) -> datetime:
        unit = self._times.unit or self._detected_unit(number)
        micros = number * _MICROSECONDS[unit]
        if not _FIRST <= micros < _END:
            raise CellError(f"as {UNIT_NAMES[unit]} since 1970 is no time of 2000 to 2100")
        return _EPOCH + timedelta(microseconds=int(micros))

    def _detected_unit(self, number: Decimal) -> str:
        fitting = [unit for unit, size in _MICROSECONDS.items() if _FIRST <= number * size < _END]
        if not fitting:
            raise CellError(
                "is no time since 1970 between 2000 and 2100 in seconds, milliseconds,"
                " microseconds or nanoseconds; name another form by format in [times], such as"
                ' format = "%Y%m%d"'
            )
        (unit,) = fitting
        if self.detected not in (None, unit):
            raise CellError(
                f"reads as {UNIT_NAMES[unit]} since 1970, cells above it as"
                f" {UNIT_NAMES[self.detected or unit]}; set unit in [times]"
            )
        self.detected = unit
        return unit

    def _in_utc(self, stamp: datetime) -> datetime:
        try:
            if stamp.tzinfo is not None:
                return stamp.astimezone(UTC)
            if self._zone is UTC:
                return stamp.replace(tzinfo=UTC)
            return (stamp - self._offset(stamp)).replace(tzinfo=UTC)
        except OverflowError:
            raise CellError("is no time of 2000 to 2100") from None

    def _offset(self, naive: datetime) -> timedelta:
        """Returns the zone's offset at a naive time, remembered for hours in which it is one."""
        hour = naive.toordinal() * 24 + naive.hour
        if hour not in self._offsets:
            begin = naive.replace(minute=0, second=0, microsecond=0)
            ends = (begin, begin + timedelta(minutes=59, seconds=59))
            offsets = {self._offset_at(end, fold) for end in ends for fold in (0, 1)}
            self._offsets[hour] = offsets.pop() if len(offsets) == 1 else None
        offset = self._offsets[hour]
        return self._doubtful_offset(naive) if offset is None else offset

    def _offset_at(self, naive: datetime, fold: int) -> timedelta:
        offset = naive.replace(tzinfo=self._zone, fold=fold).utcoffset()
        return timedelta(0) if offset is None else offset

    def _doubtful_offset(self, naive: datetime) -> timedelta:
        """Returns the offset of a time in an hour in which clocks change (PEP 495)."""
        times = self._times
        before, after = self._offset_at(naive, 0), self._offset_at(naive, 1)
        if before > after and times.ambiguous == "refuse":
            raise CellError(
                f"is twice in {times.zone}, where clocks go back; give times with an offset, or set"
                ' ambiguous = "earlier" or "later" in [times]'
            )
        if before < after and times.nonexistent == "refuse":
            raise CellError(
                f"does not exist in {times.zone}, where clocks go forward; is zone right? To move"
                ' such times on, set nonexistent = "shift_forward" in [times]'
            )
        return after if before > after and times.ambiguous == "later" else before


def _formatted(text: str, form: str) -> datetime:
    try:
        return datetime.strptime(text, form)  # noqa: DTZ007 - the zone is the map's
    except ValueError:
        raise CellError(f"is not of the format {form!r}") from None
