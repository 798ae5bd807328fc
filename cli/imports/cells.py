"""The readers of single cells, as macros of DuckDB: text, number, yes or no, and JSON object."""

import re
import string
from dataclasses import dataclass

import duckdb

from cli.imports.faults import RowError
from cli.imports.tables import Table, literal, quoted

# What databases and pandas write for NULL in a file of text.
NULL_WORDS = ("", "NULL", "null", "None", "NaN", "nan", "NA", "N/A", "<NA>", "NaT", r"\N")
_NEITHER = "is neither yes nor no: true, yes, t, y, on or a number, false, no, f, n, off or 0"
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?"
SECRET = ("user_ref", "properties")

_MACROS = r"""
CREATE MACRO stripped(cell) AS trim(cell, {spaces});
CREATE MACRO is_empty(cell) AS cell IS NULL OR stripped(cell) IN ({words});
CREATE MACRO as_text(cell) AS CASE WHEN NOT is_empty(cell) THEN stripped(cell) END;
CREATE MACRO as_number(cell) AS CASE
    WHEN regexp_full_match(replace(stripped(cell), '{decimal}', '.'), '{number}')
        AND ('{decimal}' = '.' OR NOT contains(cell, '.'))
        AND isfinite(TRY_CAST(replace(stripped(cell), '{decimal}', '.') AS DOUBLE))
    THEN CAST(replace(stripped(cell), '{decimal}', '.') AS DOUBLE)
END;
CREATE MACRO as_whole(cell) AS CASE WHEN as_number(cell) = trunc(as_number(cell))
    THEN as_number(cell) END;
CREATE MACRO as_outcome(cell) AS CASE
    WHEN is_empty(cell) THEN false
    WHEN lower(stripped(cell)) IN ('true', 't', 'yes', 'y', 'on') THEN true
    WHEN lower(stripped(cell)) IN ('false', 'f', 'no', 'n', 'off') THEN false
    ELSE as_number(cell) <> 0
END;
CREATE MACRO as_object(cell) AS CASE
    WHEN json_valid(cell) THEN CASE WHEN json_type(cell) = 'OBJECT' THEN CAST(cell AS JSON) END
END;
CREATE MACRO as_moment(time) AS replace(CAST(time AS VARCHAR), ' ', 'T') || 'Z';
"""


def define_readers(database: duckdb.DuckDBPyConnection, decimal: str) -> None:
    """Defines the readers of cells, with the decimal sign of numbers in text."""
    words = ", ".join(map(literal, NULL_WORDS))
    database.execute(
        _MACROS.replace("{words}", words)
        .replace("{decimal}", decimal)
        .replace("{number}", _NUMBER)
        .replace("{spaces}", literal(string.whitespace))
    )


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The reading of a column as a member of an event.

    Attributes:
        member: The member of the event that the column fills.
        column: The column.
        value: The SQL of the value; NULL of a cell that is empty or cannot be read.
        name: The name under which the map's SELECT has the value.
        missing: The fault of an empty cell; None where it may be empty.
        where: In which rows it is read.
    """

    member: str
    column: str
    value: str
    name: str
    missing: str | None = None
    where: str = "true"

    @property
    def fault(self) -> str:
        """The SQL that tells whether the cell of a row is at fault."""
        empty = "" if self.missing is not None else f" AND NOT is_empty({quoted(self.column)})"
        within = "" if self.where == "true" else f"{self.where} AND "
        return f"{within}{self.name} IS NULL{empty}"

    def row_error(self, table: Table, row: int, decimal: str) -> RowError:
        """Returns the fault of a row's cell."""
        cell = table.cell(row, self.column)
        return RowError(
            table.place(row),
            self.reason(table, cell, decimal),
            column=self.column,
            cell=cell,
            is_secret=self.member in SECRET,
        )

    def reason(self, table: Table, cell: str | None, decimal: str) -> str:
        """Returns why a cell cannot be read."""
        (is_empty,) = table.query("SELECT is_empty(?)", cell)[0]
        if is_empty or cell is None:
            return self.missing or "is empty"
        if self.value.startswith("as_object"):
            return "is no JSON object"
        if self.value.startswith("as_whole") and re.fullmatch(
            _NUMBER, cell.strip().replace(decimal, ".")
        ):
            return "is no whole number, and its currency has no minor unit"
        return number_fault(cell.strip(), decimal, _NEITHER if "as_outcome" in self.value else None)


def number_fault(text: str, decimal: str, otherwise: str | None) -> str:
    """Returns why a text is no number."""
    other = "," if decimal == "." else "."
    if other in text:
        hint = 'set decimal = ","' if other == "," else 'leave out decimal = ","'
        return (
            f"is no number with the decimal sign {decimal!r} and without separators of"
            f" thousands; {hint} in the map if {other!r} is the decimal sign"
        )
    if otherwise is None and re.fullmatch(_NUMBER, text.replace(decimal, ".")):
        return "is beyond every number that can be stored"
    return otherwise or "is no number"
