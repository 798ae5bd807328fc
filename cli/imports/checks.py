"""The checks of events: the reader of `POST /v1/events` itself reads them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from api.wire.event_batch import MOST_EVENTS, EventReader
from api.wire.problem import Fault, Problem
from cli.imports.cells import define_readers
from cli.imports.faults import ImportFailedError, MapError, RowError, name_list, shown_cell
from cli.imports.layouts import Layout, broken_rule
from cli.imports.map import ImportMap
from cli.imports.tables import ROW, Table, file_format
from cli.imports.units import require_exact
from storage.log.events import EventLines, event_lines


class EventLinesOfFile:
    """Lines that are runtime events, which need no map."""

    def __init__(self, table: Table) -> None:
        table.load_documents()
        define_readers(table.database, ".")
        for member in ("session_id", "user_ref", "event_id"):
            cell = f"json_extract_string(json, '$.{member}')"
            rows = "(FROM cells WHERE contains(lower(json), 'e+'))"
            require_exact(table, cell, column=member, member=member, rows=rows)
        self.table = table
        self.skipped, self.arms = Counter[str](), Counter[str]()
        self.rows = table.rows()

    def select(self) -> str:
        """Returns the SELECT of the lines as they are."""
        return f"SELECT {ROW} AS row, NULL AS fault, 0 AS part, json AS event FROM cells"

    def refusal(self, row: int, part: int, event: str, fault: Fault) -> RowError:  # noqa: ARG002
        """Returns a refusal of the API's reader as the fault of a line."""
        member = "/".join(fault.at.split("/")[3:]) or "event"
        return RowError(self.table.place(row), f"{member}: {fault.detail}")


# Where events come from: a table whose SELECT gives each row's events, or its fault.
EventSource = Layout | EventLinesOfFile


class EventChecks:
    """Holds events to the rules of the API."""

    def __init__(self, reader: EventReader) -> None:
        self.ignored: set[str] = set()
        self.unknown: Counter[str] = Counter()
        self._reader = reader

    def require_map(self, layout: ImportMap) -> None:
        """Checks the members that a map itself sets, before any row is read.

        Raises:
            MapError: A member breaks its rule.
        """
        self._require_members("constants", layout.constants)
        for arm, commit in layout.commits.items():
            self._require_members(f"commits.{arm}", {"commit": commit})
        for experiment in layout.experiments:
            for member in ("control_commit", "treatment_commit"):
                commit = getattr(experiment, member)
                self._require_members(f"experiment.{member}", {"commit": commit})
        for column, outcome in layout.outcomes.items():
            self._require_members(f"metrics.{column}", {"event": outcome.event})

    def _require_members(self, place: str, members: Mapping[str, Any]) -> None:
        sample = {
            "event": "page_view",
            "session_id": "s",
            **members,
            "occurred_at": "2000-01-01T00:00:00Z",
        }
        read = self._reader.batch(msgspec.json.encode({"events": [sample]}))
        broken = [broken_rule(rejected.faults[0]) for rejected in read.rejected]
        broken += [(member, "it says nothing") for member in read.unknown]
        for member, rule in broken:
            raise MapError(f"{place}: {member} is {shown_cell(members.get(member))}: {rule}")

    def checked(self, source: EventSource) -> Iterator[tuple[EventLines, float]]:
        """Yields the events of a source in batches, and the share of it that is read.

        Raises:
            RowError: A cell breaks a rule; row, column and cell are named.
        """
        total = max(1, source.table.rows())
        for batch in source.table.batches(source.select()):
            if isinstance(source, Layout):
                source.require_cells(batch)
            events = batch.column("event").to_pylist()
            share = batch.column("row")[len(events) - 1].as_py() / total if events else 0.0
            for begin in range(0, len(events), MOST_EVENTS):
                some = events[begin : begin + MOST_EVENTS]
                yield self._read(source, batch, begin, some), share

    def _read(
        self,
        source: EventSource,
        batch: Any,  # noqa: ANN401 - pyarrow has no types
        begin: int,
        events: Sequence[str],
    ) -> EventLines:
        body = f'{{"events":[{",".join(events)}]}}'.encode()
        by_column = self._reader.columns(body)
        if by_column is not None:
            columns, unknown = by_column
            self.unknown += unknown
            return columns.lines(history=True)
        place = [batch.column(name).to_pylist()[begin:] for name in ("row", "part")]
        try:
            read = self._reader.batch(body)
        except Problem:
            raise self._broken(source, place[0], events) from None
        if read.rejected:
            first = read.rejected[0]
            rows, parts = place
            raise source.refusal(
                rows[first.index], parts[first.index], events[first.index], first.faults[0]
            )
        self.ignored |= read.ignored
        self.unknown += read.unknown
        return event_lines(read.events, history=True)

    def _broken(
        self, source: EventSource, rows: Sequence[int], events: Sequence[str]
    ) -> ImportFailedError:
        """Returns the fault of the first event that the API does not read as JSON."""
        for row, event in zip(rows, events, strict=False):
            try:
                self._reader.batch(f'{{"events":[{event}]}}'.encode())
            except Problem as problem:
                detail = problem.detail.removeprefix("the body ")
                return RowError(source.table.place(row), detail)
        raise AssertionError("every event is JSON")  # pragma: no cover

    def notes(self) -> list[str]:
        """Returns which members were ignored, and which said nothing, as sentences."""
        notes = [
            f"{count:,} of {member} say nothing, such as `undefined`: their events count without."
            for member, count in self.unknown.items()
        ]
        if self.ignored:
            notes.append(
                f"Members that no event has were ignored: {name_list(sorted(self.ignored))}."
            )
        return notes


_EXAMPLE = """
  layout = "event"

  [times]
  column = "at"

  [columns]
  event = "event"
  session_id = "session"
  commit = "commit"
"""


def require_lines(table: Table) -> None:
    """Holds that a file without a map is NDJSON.

    Raises:
        ImportFailedError: It is a table; the message names its columns and shows a map.
    """
    kind = file_format(table.path)
    if kind != "ndjson":
        raise ImportFailedError(
            f"{table.path.name} is a table in {'Parquet' if kind == 'parquet' else 'CSV'}: it needs"
            f" --map MAP.toml, which says what its columns ({name_list(table.names())}) mean. For a"
            f" row an event, for example:\n{_EXAMPLE}\ndocs/import.md has maps for a row a unit."
        )
