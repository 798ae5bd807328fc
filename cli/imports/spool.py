"""The spool: checked events on disk, until the whole file has passed the checks."""

import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import IO, Self

from storage.log.events import HistoryLines

_BLOCK = 1 << 20


@dataclass(kw_only=True)
class Tally:
    """The counts of a file's events.

    Attributes:
        events: How many there are of each name.
        commits: How many name each commit.
        first: The first time, by environment.
        last: The last time, by environment.
        days: The days, in UTC, of any event.
    """

    events: Counter[str] = field(default_factory=Counter[str])
    commits: Counter[str] = field(default_factory=Counter[str])
    first: dict[str, datetime] = field(default_factory=dict[str, datetime])
    last: dict[str, datetime] = field(default_factory=dict[str, datetime])
    days: set[date] = field(default_factory=set[date])

    def add(self, lines: HistoryLines) -> None:
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
    """Events as lines of COPY's text format in a file that has no name.

    Attributes:
        tally: The counts of the added events.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.tally = Tally()
        self._file = file

    @classmethod
    @contextmanager
    def opened(cls) -> Generator[Self]:
        """Gives an empty spool; the disk is free again at its end, also at a kill."""
        with tempfile.TemporaryFile() as file:
            yield cls(file)

    def add(self, lines: HistoryLines) -> None:
        """Appends events."""
        self._file.write(lines.text.encode())
        self.tally.add(lines)

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return self._file.tell()

    def blocks(self) -> Iterator[bytes]:
        """Yields the added events, from the beginning."""
        self._file.seek(0)
        while block := self._file.read(_BLOCK):
            yield block
