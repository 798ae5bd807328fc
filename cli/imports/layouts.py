"""The layouts of a file: a row an event, or a row a unit; each row becomes drafts of events."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from cli.imports.cells import (
    number_reader,
    outcome_reader,
    read_object,
    read_text,
)
from cli.imports.faults import CellError, MapError, RowError, name_list
from cli.imports.map import ImportMap, Outcome, Times
from cli.imports.selection import Selection
from cli.imports.tables import Chunk
from cli.imports.times import UNIT_NAMES, TimeReader
from domain.currency import minor_unit_digits

_Read = Callable[[Any], Any]
# Other values of the arm column than the map names, so many of them, are told by name.
_MOST_ARMS = 1000


_NO_COLUMNS: Mapping[str, str] = {}


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event as a row gives it, before the rules of the API are asked.

    Attributes:
        row: The index of the row in its chunk.
        members: Of the event, as `POST /v1/events` takes them.
        columns: Member -> column, for members that an outcome has from columns of its own.
    """

    row: int
    members: dict[str, Any]
    columns: Mapping[str, str] = _NO_COLUMNS


def column_values(
    chunk: Chunk, column: str, rows: Sequence[int], read: _Read, *, is_secret: bool = False
) -> list[Any]:
    """Returns the cells of a column in some rows, read.

    Raises:
        RowError: A cell cannot be read; row, column and cell are named.
    """
    cells = chunk.cells(column)
    try:
        return [read(cells[row]) for row in rows]
    except CellError:
        raise _row_error(chunk, column, rows, read, is_secret=is_secret) from None


def _row_error(
    chunk: Chunk, column: str, rows: Sequence[int], read: _Read, *, is_secret: bool
) -> RowError:
    """Returns the fault of the first cell that cannot be read."""
    cells = chunk.cells(column)
    for row in rows:
        try:
            read(cells[row])
        except CellError as fault:
            return RowError(
                chunk.place(row), str(fault), column=column, cell=cells[row], is_secret=is_secret
            )
    raise AssertionError("no cell of the column is at fault")  # pragma: no cover


class RowTimes:
    """The times of rows: of a column, or drawn over some days."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._reader = TimeReader(times)
        self._draws = np.random.default_rng(times.seed)
        self._start = None if times.start is None else self._read_start(times.start)

    def _read_start(self, start: str) -> datetime:
        try:
            read = TimeReader(Times(column="start", zone=self._times.zone)).read(start)
        except CellError as fault:
            raise MapError(f"times.start is {start!r}: {fault}") from None
        if read is None:
            raise MapError("times.start is empty: name the time that spread_days begin at")
        return read

    def of(self, chunk: Chunk, rows: Sequence[int]) -> list[datetime]:
        """Returns the times of some rows of a chunk; chunks are asked in the file's order."""
        if self._start is not None and self._times.spread_days is not None:
            # Of every row, taken or not, so that `where` moves no other row.
            seconds = self._draws.uniform(0, self._times.spread_days * 86_400, chunk.size)
            return [self._start + timedelta(seconds=float(seconds[row])) for row in rows]
        column = self._times.column or ""
        times = column_values(chunk, column, rows, self._reader.read)
        for row, time in zip(rows, times, strict=True):
            if time is None:
                cell = chunk.cells(column)[row]
                raise RowError(chunk.place(row), "names no time", column=column, cell=cell)
        return times

    def notes(self) -> list[str]:
        """Returns how the numbers of the column were read as times."""
        if self._reader.detected is None:
            return []
        return [_note(self._times.column, self._reader.detected)]


def _note(column: str | None, unit: str) -> str:
    return (
        f"Numbers in column {column!r} were read as {UNIT_NAMES[unit]} since 1970:"
        f' unit = "{unit}" in [times] says so.'
    )


class _Rows:
    """What both layouts read alike: which rows, their units, their times, their members."""

    def __init__(self, layout: ImportMap) -> None:
        self.map = layout
        self.rows = 0
        self.skipped: Counter[str] = Counter()
        self.arms: Counter[str] = Counter()
        self.selection = Selection(layout)
        self.times = RowTimes(layout.times)
        self.read_number = number_reader(layout.decimal)
        self.constants = {
            name: value for name, value in layout.constants.items() if name != "session_id"
        }

    def taken(self, chunk: Chunk) -> Sequence[int]:
        """Returns the rows of a chunk that `where` takes, the others counted."""
        self.rows += chunk.size
        rows = self.selection.rows(chunk)
        if left := chunk.size - len(rows):
            self.skipped["where"] += left
        return rows

    def units(self, chunk: Chunk, rows: Sequence[int], column: str | None) -> list[str]:
        """Returns the units of some rows, numbered where no column names them."""
        if column is None:
            return [str(chunk.first_row - 1 + row) for row in rows]
        units = column_values(chunk, column, rows, read_text)
        for row, unit in zip(rows, units, strict=True):
            if unit is None:
                cell = chunk.cells(column)[row]
                raise RowError(chunk.place(row), "names no unit", column=column, cell=cell)
        return units

    def members(self, chunk: Chunk, rows: Sequence[int]) -> Mapping[str, list[Any]]:
        """Returns the cells of [columns] in some rows, by member."""
        readers: dict[str, _Read] = {
            "value": self.read_number,
            "flags": read_object,
            "properties": read_object,
        }
        return {
            member: column_values(
                chunk,
                column,
                rows,
                readers.get(member, read_text),
                is_secret=member in ("user_ref", "properties"),
            )
            for member, column in self.map.columns.items()
            if member != "session_id"
        }

    def notes(self) -> list[str]:
        """Returns the choices that the file made without the map, as sentences."""
        return self.times.notes()


class EventLayout(_Rows):
    """A row an event."""

    def drafts(self, chunk: Chunk) -> Iterator[Draft]:
        """Yields the event of each row."""
        rows = self.taken(chunk)
        times = self.times.of(chunk, rows)
        units = self.units(chunk, rows, self._unit_column)
        members = self.members(chunk, rows)
        for index, row in enumerate(rows):
            filled = {
                member: values[index]
                for member, values in members.items()
                if values[index] is not None
            }
            if "event" not in filled and "event" not in self.constants:
                column = self.map.columns["event"]
                raise RowError(
                    chunk.place(row), "names no event", column=column, cell=chunk.cells(column)[row]
                )
            yield Draft(
                row=row,
                members={
                    **self.constants,
                    **filled,
                    "session_id": units[index],
                    "occurred_at": times[index],
                },
            )

    @property
    def _unit_column(self) -> str | None:
        return self.map.columns.get("session_id") or self.map.unit

    def source(self, member: str) -> str | None:
        """Returns the column that fills a member of events, None where none does."""
        if member == "session_id":
            return self._unit_column
        return self.map.times.column if member == "occurred_at" else self.map.columns.get(member)


class UnitLayout(_Rows):
    """A row a unit: exposed at its time by its arm's commit, with its outcomes."""

    def __init__(self, layout: ImportMap) -> None:
        super().__init__(layout)
        self._exposure = layout.constants.get("event", "page_view")
        self._outcomes = [
            OutcomeColumn(column, outcome, layout) for column, outcome in layout.outcomes.items()
        ]

    def drafts(self, chunk: Chunk) -> Iterator[Draft]:
        """Yields the exposure of each row of a named arm, and its outcomes."""
        rows, commits = self._of_named_arms(chunk, self.taken(chunk))
        times = self.times.of(chunk, rows)
        units = self.units(chunk, rows, self.map.unit)
        constants, filled = self.constants, list(self.members(chunk, rows).items())
        outcomes = [(column, column.read(chunk, rows, times)) for column in self._outcomes]
        for index, row in enumerate(rows):
            unit = {**constants, "session_id": units[index], "commit": commits[index]}
            for name, values in filled:
                if values[index] is not None:
                    unit[name] = values[index]
            yield Draft(
                row=row,
                members={
                    **unit,
                    "event": self._exposure,
                    "occurred_at": times[index],
                },
            )
            for column, values in outcomes:
                if (outcome := values[index]) is not None:
                    yield Draft(
                        row=row,
                        members={**unit, "event": column.outcome.event, **outcome},
                        columns=column.sources,
                    )

    def _of_named_arms(
        self, chunk: Chunk, rows: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[str]]:
        """Returns the rows of arms that the map names, and the commit of each."""
        arms = column_values(chunk, self.map.arm or "", rows, read_text)
        commits = self.map.commits
        named = [row for row, arm in zip(rows, arms, strict=True) if arm in commits]
        self.arms.update(arm for arm in arms if arm in commits)
        for arm, count in Counter(arm or "" for arm in arms if arm not in commits).items():
            many = len(self.skipped) > _MOST_ARMS and arm not in self.skipped
            self.skipped["others" if many else f"arm {arm!r}"] += count
        return named, [commits[arm] for arm in arms if arm in commits]

    def require_all_arms(self) -> None:
        """Holds that every arm of the map has a row.

        Raises:
            MapError: One has none; the arms that the file has are named.
        """
        missing = [arm for arm in self.map.commits if not self.arms[arm]]
        if not missing:
            return
        present = [*map(repr, self.arms)]
        present += [name.removeprefix("arm ") for name in self.skipped if name.startswith("arm ")]
        raise MapError(
            f"commits: no row that is taken has {missing[0]!r} in column {self.map.arm!r}; the rows"
            f" have {name_list(present) or 'nothing'}"
        )

    def source(self, member: str) -> str | None:
        """Returns the column that fills a member of events, None where none does."""
        columns = {
            **self.map.columns,
            "session_id": self.map.unit,
            "occurred_at": self.map.times.column,
            "commit": self.map.arm,
        }
        return columns.get(member)

    def notes(self) -> list[str]:
        """Returns the choices that the file made without the map, as sentences."""
        return [*super().notes(), *(note for column in self._outcomes for note in column.notes())]


class OutcomeColumn:
    """A column of outcomes: yes or no, an amount, or the time of the outcome."""

    def __init__(self, column: str, outcome: Outcome, layout: ImportMap) -> None:
        self.outcome = outcome
        self._column = column
        self._times = TimeReader(layout.times)
        self._read = (number_reader if outcome.value else outcome_reader)(layout.decimal)
        digits = 0 if outcome.currency is None else minor_unit_digits(outcome.currency)
        self._minor_units = 10**digits
        self.sources = {"value": column}
        if outcome.at is not None:
            self.sources["occurred_at"] = outcome.at

    def read(
        self, chunk: Chunk, rows: Sequence[int], exposures: Sequence[datetime]
    ) -> list[dict[str, Any] | None]:
        """Returns the members of each row's outcome besides its event; None where it is a no."""
        at, column = self.outcome.at, self._column
        if at == column:
            # The time is the outcome: a NULL says that there was none.
            times = column_values(chunk, column, rows, self._times.read)
            return [None if time is None else {"occurred_at": time} for time in times]
        values = column_values(chunk, column, rows, self._read)
        yes = [index for index, value in enumerate(values) if value]
        members: list[dict[str, Any] | None] = [None] * len(rows)
        times = (
            [exposures[index] for index in yes]
            if at is None
            else self._times_of(chunk, [rows[index] for index in yes], at)
        )
        for index, time in zip(yes, times, strict=True):
            amount = {"value": values[index] * self._minor_units} if self.outcome.value else {}
            members[index] = {"occurred_at": time, **amount}
        return members

    def _times_of(self, chunk: Chunk, rows: Sequence[int], column: str) -> list[datetime]:
        times = column_values(chunk, column, rows, self._times.read)
        for row, time in zip(rows, times, strict=True):
            if time is None:
                raise RowError(
                    chunk.place(row),
                    f"names no time, but column {self._column!r} says that there was an outcome",
                    column=column,
                    cell=chunk.cells(column)[row],
                )
        return times

    def notes(self) -> list[str]:
        """Returns how the numbers of the outcome's time were read."""
        unit = self._times.detected
        return [] if unit is None else [_note(self.outcome.at, unit)]


Layout = UnitLayout | EventLayout


def layout_of(layout: ImportMap) -> Layout:
    """Returns the layout that a map names."""
    return UnitLayout(layout) if layout.layout == "unit" else EventLayout(layout)
