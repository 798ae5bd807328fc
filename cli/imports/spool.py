"""The spool: checked events on disk, until the whole file has passed the checks."""

import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.compute
from pyarrow import csv

from storage.lake.parquet import COLUMNS, canonical_flags
from storage.log.events import COLUMNS as FIELDS
from storage.log.events import EventLines

_BLOCK = 1 << 20
_TIMES = {"occurred": "occurred_at", "received": "received_at", "sent": "sent_at"}
_compute: Any = pyarrow.compute
_csv: Any = csv
# In this order: the last has made all others of its own.
_ESCAPED = (("\\\\", "\0"), ("\\t", "\t"), ("\\n", "\n"), ("\\r", "\r"), ("\0", "\\"))


@dataclass(kw_only=True)
class Tally:
    """The counts of a file's events.

    Attributes:
        days: The days, in UTC, of any event.
    """

    events: Counter[str] = field(default_factory=Counter[str])
    commits: Counter[str] = field(default_factory=Counter[str])
    first: dict[str, datetime] = field(default_factory=dict[str, datetime])
    last: dict[str, datetime] = field(default_factory=dict[str, datetime])
    days: set[date] = field(default_factory=set[date])

    def add(self, lines: EventLines) -> None:
        """Counts some events."""
        self.events.update(lines.names)
        self.commits.update([commit for commit in lines.commits if commit is not None])
        times: dict[str, list[datetime]] = {}
        for environment, time in zip(lines.environments, lines.occurred_at, strict=True):
            times.setdefault(environment, []).append(time)
        for environment, occurred in times.items():
            first, last = min(occurred), max(occurred)
            self.first[environment] = min(first, self.first.get(environment, first))
            self.last[environment] = max(last, self.last.get(environment, last))
            self.days.update([time.date() for time in occurred])


class Spool:
    """Events as lines of COPY's text format in a file that has no name."""

    def __init__(self, file: IO[bytes]) -> None:
        self.tally = Tally()
        self._file = file

    @classmethod
    @contextmanager
    def opened(cls) -> Generator[Self]:
        """Gives an empty spool; the disk is free again at its end, also at a kill."""
        with tempfile.TemporaryFile() as file:
            yield cls(file)

    def add(self, lines: EventLines) -> None:
        """Appends events."""
        self._file.write(lines.text.encode())
        self.tally.add(lines)

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return self._file.tell()

    def batches(self) -> Iterator[Any]:
        """Yields the added events as record batches, in the columns of the sealed log."""
        if not self.tally.events:
            return
        self._file.seek(0)
        times = dict.fromkeys(_TIMES.values(), pa.timestamp("us", "UTC"))
        types = {field.name: field.type for field in COLUMNS if field.name in FIELDS}
        reader = _csv.open_csv(
            self._file,
            read_options=_csv.ReadOptions(column_names=FIELDS, block_size=_BLOCK),
            parse_options=_csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=_csv.ConvertOptions(
                column_types=types | times,
                null_values=[""],
                strings_can_be_null=True,
                true_values=["t"],
                false_values=["f"],
            ),
        )
        for batch in reader:
            arrays = [_column(batch, field) for field in COLUMNS]
            yield pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)

    def blocks(self) -> Iterator[bytes]:
        """Yields the added events, from the beginning."""
        self._file.seek(0)
        while block := self._file.read(_BLOCK):
            yield block


def _column(batch: Any, field: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Returns a member of lines of COPY's text as the sealed log has it."""
    name = _TIMES.get(field.name, field.name)
    array = batch.column(name)
    if field.type != pa.string():
        return array.cast(field.type)
    if _compute.any(_compute.match_substring(array, "\\")).as_py():
        for escaped, plain in _ESCAPED:
            array = _compute.replace_substring(array, escaped, plain)
    if name == "pseudonym":
        # It begins with `\x`, as PostgreSQL writes bytes.
        return _compute.utf8_slice_codeunits(array, 2)
    return canonical_flags(array) if name == "flags" else array
