"""Runtime events as lines of NDJSON, which need no map: the reader of the API reads them."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from api.wire.event_batch import MOST_EVENTS, Batch, EventReader
from api.wire.problem import Problem
from cli.imports.faults import ImportFailedError, RowError, name_list
from cli.imports.tables import file_format, header, opened, share_read
from storage.log.events import RuntimeEvent

_EXAMPLE = """
  layout = "event"

  [times]
  column = "at"

  [columns]
  event = "event"
  session_id = "session"
  commit = "commit"
"""


def require_lines(path: Path) -> None:
    """Holds that a file without a map is NDJSON.

    Raises:
        ImportFailedError: It is a table; the message names its columns and shows a map.
    """
    kind = file_format(path)
    if kind == "csv":
        with opened(path) as stream:
            if stream.read(1) == b"{":
                return
    if kind != "ndjson":
        raise ImportFailedError(
            f"{path.name} is a table in {'Parquet' if kind == 'parquet' else 'CSV'}: it needs --map"
            f" MAP.toml, which says what its columns ({name_list(header(path))}) mean. For a row an"
            f" event, for example:\n{_EXAMPLE}\ndocs/import.md has maps for a row a unit."
        )


class LineReader:
    """Reads lines as runtime events.

    Attributes:
        rows: How many events were read.
        ignored: Unknown members, which are ignored as the API ignores them.
    """

    def __init__(self, reader: EventReader) -> None:
        self.rows = 0
        self.ignored: set[str] = set()
        self._reader = reader

    def events(self, path: Path) -> Iterator[tuple[list[RuntimeEvent], float]]:
        """Yields the events of a file, in batches, and which share of it is read.

        Raises:
            RowError: A line is no event of the past; the line and the member are named.
        """
        first = 1
        with opened(path) as stream:
            while lines := list(islice(stream, MOST_EVENTS)):
                numbered = [
                    (number, line.strip())
                    for number, line in enumerate(lines, start=first)
                    if line.strip()
                ]
                first += len(lines)
                if numbered:
                    yield self._batch(numbered).events, share_read(path, stream)

    def _batch(self, numbered: list[tuple[int, bytes]]) -> Batch:
        try:
            batch = self._reader.batch(b'{"events":[%s]}' % b",".join(line for _, line in numbered))
        except Problem as problem:
            raise self._broken_line(numbered, problem) from None
        if len(batch.events) + len(batch.rejected) != len(numbered):
            raise self._broken_line(numbered, None)
        if batch.rejected:
            rejected = batch.rejected[0]
            fault = rejected.faults[0]
            member = "/".join(fault.at.split("/")[3:]) or "event"
            number = numbered[rejected.index][0]
            raise RowError(f"line {number}", f"{member}: {fault.detail}")
        self.rows += len(batch.events)
        self.ignored |= batch.ignored
        return batch

    def _broken_line(self, numbered: list[tuple[int, bytes]], problem: Problem | None) -> RowError:
        """Returns the fault of the first line that is no single JSON object."""
        for number, line in numbered:
            try:
                batch = self._reader.batch(b'{"events":[%s]}' % line)
            except Problem as broken:
                detail = broken.detail.removeprefix("the body ")
                return RowError(f"line {number}", f"{detail}: NDJSON has an object a line")
            if len(batch.events) + len(batch.rejected) != 1:
                return RowError(f"line {number}", "holds several objects: NDJSON has one a line")
        detail = "is not NDJSON" if problem is None else problem.detail
        return RowError(f"lines {numbered[0][0]} to {numbered[-1][0]}", detail)

    def notes(self) -> list[str]:
        """Returns which members were ignored, as a sentence."""
        if not self.ignored:
            return []
        return [f"Members that no event has were ignored: {name_list(sorted(self.ignored))}."]
