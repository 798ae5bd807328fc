"""The rows of a file that a map's `where` takes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cli.imports.cells import is_null, number_reader, outcome_reader, read_text
from cli.imports.faults import CellError
from cli.imports.map import ImportMap, Values
from cli.imports.tables import Chunk

_Test = Callable[[Any], bool]
_Read = Callable[[Any], object]


class Selection:
    """Tells which rows of a chunk a map takes."""

    def __init__(self, layout: ImportMap) -> None:
        self._decimal = layout.decimal
        self._where = layout.where
        self._tests: list[Mapping[str, Sequence[_Test]]] = [
            {
                column: [self._test(value) for value in _listed(values)]
                for column, values in alternative.items()
                if _other(values) is None
            }
            for alternative in layout.where
        ]

    def rows(self, chunk: Chunk) -> Sequence[int]:
        """Returns the indices of the rows that fulfil one of the alternatives."""
        if not self._where:
            return range(chunk.size)
        taken: set[int] = set()
        for alternative, tests in zip(self._where, self._tests, strict=True):
            rows: Sequence[int] = range(chunk.size)
            for column, values in alternative.items():
                cells, other = chunk.cells(column), _other(values)
                if other is None:
                    passing = tests[column]
                    rows = [row for row in rows if any(test(cells[row]) for test in passing)]
                else:
                    others = chunk.cells(other)
                    rows = [row for row in rows if _text(cells[row]) == _text(others[row])]
            taken.update(rows)
        return sorted(taken)

    def _test(self, value: str | float | bool) -> _Test:
        """Returns the test that a cell equals a value: by the kind of the value in TOML."""
        if isinstance(value, str):
            return lambda cell: _text(cell) == value
        decimal, is_word = self._decimal, isinstance(value, bool)
        read: _Read = outcome_reader(decimal) if is_word else number_reader(decimal)
        return lambda cell: not is_null(cell) and _equals(read, cell, value)


def _equals(read: _Read, cell: object, value: object) -> bool:
    try:
        return read(cell) == value
    except CellError:
        return False


def _text(cell: object) -> str:
    try:
        return read_text(cell) or ""
    except CellError:
        return ""


def _listed(values: Values) -> Sequence[str | int | float | bool]:
    return values if isinstance(values, list) else [values]


def _other(values: Values) -> str | None:
    """Returns the column that a value of `where` names by `@`."""
    return values[1:] if isinstance(values, str) and values.startswith("@") else None
