"""The readers of single cells, as macros of DuckDB: text, number, yes or no, and JSON object."""

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from cli.imports.faults import MapError, RowError, name_list
from cli.imports.map import Outcome
from cli.imports.tables import Table, literal, quoted
from domain.absence import WORDS

# Words that databases and pandas write for NULL in text files.
NULL_WORDS = ("", "NULL", "null", "None", "NaN", "nan", "NA", "N/A", "<NA>", "NaT", r"\N")
_NEITHER = (
    "is neither yes nor no: true, yes, t, y, on or a number, false, no, f, n, off or 0; other words"
    " for yes are named by yes in [metrics]"
)
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?"
# Columns of more different cells hold no codes.
_MOST_CODES = 20
SECRET = ("user_ref", "properties")

_MACROS = r"""
-- To look at both ends costs a third of trim(), and nearly all cells have no spaces there.
CREATE MACRO stripped(cell) AS CASE
    WHEN left(cell, 1) > ' ' AND right(cell, 1) > ' ' THEN cell ELSE trim(cell, {spaces})
END;
CREATE MACRO is_empty(cell) AS cell IS NULL OR stripped(cell) IN ({words});
CREATE MACRO as_text(cell) AS CASE WHEN NOT is_empty(cell) THEN stripped(cell) END;
CREATE MACRO is_nothing(cell) AS lower(stripped(cell)) IN ({nothing});
CREATE MACRO is_rounded(cell) AS CASE
    WHEN contains(cell, '+')
    THEN regexp_full_match(stripped(cell), '[+-]?\d([.,]\d+)?[eE]\+\d{2,}')
    WHEN contains(cell, '.0') OR contains(cell, ',0')
    THEN regexp_full_match(stripped(cell), '-?\d{16,}[.,]0+')
        AND TRY_CAST(regexp_extract(cell, '\d+') AS DOUBLE) >= {exact}
END;
CREATE MACRO is_whole_text(cell) AS
    is_empty(cell) OR regexp_full_match(stripped(cell), '-?(0|[1-9]\d*)([{decimal}]0+)?');
CREATE MACRO whole_text(cell) AS regexp_replace(as_text(cell), '[{decimal}]0+$', '');
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
        .replace("{nothing}", ", ".join(literal(word.lower()) for word in WORDS))
        .replace("{exact}", str(1 << 53))
        .replace("{spaces}", literal(string.whitespace))
    )


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The reading of a column as a member of an event.

    Attributes:
        value: The SQL of the value; NULL of a cell that is empty or cannot be read.
        missing: The fault of an empty cell; None where it may be empty.
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
    groups = rf"[+-]?\d{{1,3}}([{other}]\d{{3}})"
    if re.fullmatch(rf"{groups}+[{decimal}]\d*|{groups}{{2,}}", text):
        return f"has separators of thousands ({other!r}): export numbers without them"
    if other in text:
        hint = 'set decimal = ","' if other == "," else 'leave out decimal = ","'
        return (
            f"is no number with the decimal sign {decimal!r} and without separators of"
            f" thousands; {hint} in the map if {other!r} is the decimal sign"
        )
    if otherwise is None and re.fullmatch(_NUMBER, text.replace(decimal, ".")):
        return "is beyond every number that can be stored"
    return otherwise or "is no number"


def says_yes(column: str, yes: Sequence[str | float] | None) -> str:
    """Returns the SQL of whether a cell of an outcome says yes.

    Args:
        yes: The cells that do; None where the usual words and numbers say so.
    """
    if yes is None:
        return f"as_outcome({quoted(column)})"
    return f"({' OR '.join(_equals(quoted(column), word) for word in yes)})"


def _equals(cell: str, word: str | float) -> str:
    """Returns the SQL of whether a cell is a word: by number where both are, or by letters."""
    text = literal(str(word).strip().lower())
    return (
        f"coalesce(as_number({cell}) = as_number({text}),"
        f" lower(coalesce(as_text({cell}), '')) = {text})"
    )


def require_yes(table: Table, outcomes: Mapping[str, Outcome]) -> None:
    """Holds that it is known which cells of outcomes say yes.

    Raises:
        MapError: `yes` names a word that no row has; or a column has numbers beyond 0 and 1, and
            nothing that says no: they may be codes, such as 1 for yes and 2 for no.
    """
    for column, outcome in outcomes.items():
        if outcome.value or outcome.at == column:
            continue
        cell = quoted(column)
        rows = table.query(
            f"SELECT as_text({cell}), any_value(as_whole({cell})) FROM taken"
            f" WHERE NOT is_empty({cell}) GROUP BY 1 ORDER BY count(*) DESC, 1"
            f" LIMIT {_MOST_CODES + 1}"
        )
        words, numbers = [word for word, _ in rows], {number for _, number in rows}
        for word in outcome.yes or ():
            if not table.query(f"SELECT 1 FROM taken WHERE {_equals(cell, word)} LIMIT 1"):
                raise MapError(
                    f"metrics.{column}.yes names {word!r}, but no row that is taken has it in"
                    f" column {column!r}: it has {name_list(words) or 'nothing'}"
                )
        may_be_codes = words and len(words) <= _MOST_CODES and not numbers & {None, 0}
        if outcome.yes is None and may_be_codes and numbers != {1}:
            raise MapError(
                f"column {column!r} holds {name_list(words)} and nothing that says no: which of"
                f" these are a yes? Name them in [metrics], as in {column} = {{ event ="
                f' "{outcome.event}", yes = ["{words[0]}"] }}; where each is a yes, as in a count,'
                " write 0 for units that have none"
            )
