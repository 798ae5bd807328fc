"""The units of a file: their exact identifiers, and the arm of those that several rows name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cli.imports.cells import SECRET
from cli.imports.faults import MapError, RowError
from cli.imports.map import ImportMap
from cli.imports.tables import ROW, Table, quoted


@dataclass(frozen=True, kw_only=True)
class UnitCount:
    """How often rows name a unit again."""

    rows: int
    units: int
    in_both_arms: int

    def notes(self, layout: ImportMap) -> Iterator[str]:
        """Yields the repetitions as sentences; a unit may well have several events."""
        if self.rows and layout.layout == "unit":
            yield (
                f"Rows that repeat a unit: {self.rows:,}. A unit counts once, with the outcomes of"
                " all its rows."
            )
        if self.in_both_arms:
            yield (
                f"{self.in_both_arms:,} of {self.units:,} units have rows of both arms:"
                f' both_arms = "{layout.both_arms}" says which of them count.'
            )


def read_identifiers(table: Table, columns: Mapping[str, str]) -> dict[str, str]:
    """Returns the SQL of the texts of identifiers.

    Where every cell of a column is a whole number, a `.0` behind it is cut off: the column had
    gaps, for which its numbers became floating-point numbers.

    Args:
        table: With the view `taken`.

    Raises:
        RowError: A number has lost digits.
    """
    texts: dict[str, str] = {}
    for column, member in columns.items():
        cell = quoted(column)
        require_exact(table, cell, column=column, member=member)
        has_zero = f"contains({cell}, '{table.decimal}0')"
        ((is_whole,),) = table.query(
            f"SELECT bool_and(is_whole_text({cell})) FROM taken"
            f" WHERE EXISTS (FROM cells WHERE {has_zero})"
        )
        texts[column] = f"whole_text({cell})" if is_whole else f"as_text({cell})"
    return texts


def require_exact(
    table: Table, cell: str, *, column: str, member: str, rows: str = "taken"
) -> None:
    """Holds that an identifier is text, or a whole number with all its digits.

    Args:
        cell: SQL.

    Raises:
        RowError: Digits are lost; the column, a cell and the cure are named.
    """
    ((row, number),) = table.query(
        f"SELECT min({ROW}), arg_min({cell}, {ROW}) FROM {rows} WHERE is_rounded({cell})"
    )
    if row is not None:
        raise RowError(
            table.place(row),
            f"is a rounded number: its last digits are lost, so that different ids are the same"
            f" {member}. Floating point and spreadsheets do that to long numbers: export the column"
            ' as whole numbers or as text (in pandas as "Int64", not float64)',
            column=column,
            cell=number,
            is_secret=member in SECRET,
        )


def settle_arms(table: Table, *, unit: str, arm: str, time: str, counts: str | None) -> UnitCount:
    """Fills the table `unsettled` with the rows that do not count, of units of both arms.

    Args:
        table: With the view `taken`.
        unit: The SQL of a row's unit.
        arm: The SQL of the arm that a row names; NULL where it names none.
        time: The SQL of a row's time.
        counts: Which rows count: those of the arm of the unit's `first` row, of its `last`, or
            none (`leave_out`).

    Raises:
        MapError: There are such units, and `counts` is None.
    """
    named = f"(SELECT {ROW} AS row, {unit} AS unit, {arm} AS arm, {time} AS time FROM taken)"
    armed = f"{named} WHERE arm IS NOT NULL AND unit IS NOT NULL GROUP BY unit"
    ((rows, units, both, row),) = table.query(
        "SELECT coalesce(sum(size), 0), count(*), count(*) FILTER (low <> high),"
        " min(row) FILTER (low <> high) FROM (SELECT count(*) AS size, min(arm) AS low,"
        f" max(arm) AS high, min(row) AS row FROM {armed})"
    )
    if both and counts is None:
        raise MapError(
            f"{both:,} of {units:,} units have rows of both arms, such as that of"
            f" {table.place(row)}, so nobody can tell which arm they saw. Say in the map which rows"
            ' count: both_arms = "first" (those of the arm of their first row), "last", or'
            ' "leave_out" (none of them)'
        )
    if both:
        chosen = {"first": "arg_min", "last": "arg_max"}.get(counts or "")
        counting = "NULL" if chosen is None else f"{chosen}(arm, (time, row))"
        table.database.execute(
            f"CREATE TABLE unsettled AS SELECT row FROM {named} JOIN (SELECT unit, {counting} AS"
            f" counting FROM {armed} HAVING min(arm) <> max(arm)) USING (unit)"
            " WHERE counting IS NULL OR arm <> counting"
        )
    return UnitCount(rows=int(rows) - units, units=units, in_both_arms=both)
