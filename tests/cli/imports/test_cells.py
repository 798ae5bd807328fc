"""The readers of cells: whatever a cell's form, it means what its value means."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.imports.cells import NULL_WORDS, define_readers
from cli.imports.map import Times
from cli.imports.times import define_times, time_sql, unit_of

NUMBERS = st.integers(-(10**9), 10**9).map(lambda millionths: millionths / 10**6)
MOMENTS = st.datetimes(datetime(2000, 1, 2), datetime(2099, 12, 30))  # noqa: DTZ001 - a clock's


def reader(times: Times | None = None, *, decimal: str = ".") -> Callable[[str, object], Any]:
    """Returns what evaluates SQL on a cell, which it names `cell`."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    define_readers(database, decimal)
    define_times(database, times or Times(column="at"))

    def read(sql: str, cell: object) -> Any:
        return database.execute(f"SELECT {sql} FROM (SELECT $1 AS cell)", [cell]).fetchall()[0][0]

    return read


PLAIN, COMMA = reader(), reader(decimal=",")
BERLIN = Times(column="at", zone="Europe/Berlin")
IN_BERLIN = reader(BERLIN)


@given(NUMBERS)
def test_a_number_is_read_as_it_is_written_and_is_a_yes_where_it_is_not_zero(number) -> None:
    assert PLAIN("as_number(cell)", f" {number:f} ") == number
    assert COMMA("as_number(cell)", f"{number:f}".replace(".", ",")) == number
    assert PLAIN("as_outcome(cell)", repr(number)) == (number != 0)


@pytest.mark.parametrize("word", sorted(NULL_WORDS))
def test_an_empty_cell_is_a_no_and_no_number_and_no_text(word) -> None:
    for cell in (word, f"  {word}\t", None):
        assert PLAIN("is_empty(cell) AND NOT as_outcome(cell)", cell)
        assert PLAIN("coalesce(CAST(as_number(cell) AS VARCHAR), as_text(cell))", cell) is None


OFFSETS = st.sampled_from(["{}{:02}:{:02}", " {}{:02}{:02}"])


@given(MOMENTS, st.integers(-12 * 60, 14 * 60), OFFSETS)
def test_a_time_with_an_offset_is_its_instant(naive, minutes, form) -> None:
    local = naive + timedelta(minutes=minutes)
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    cell = local.isoformat(sep=" ") + form.format(sign, hours, rest)
    assert IN_BERLIN("from_iso(cell)", cell) == naive


@given(MOMENTS)
def test_numbers_of_every_unit_are_told_apart_by_their_size(naive) -> None:
    second = naive.replace(microsecond=0)
    for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        cell = str(int(second.replace(tzinfo=UTC).timestamp()) * factor)
        assert unit_of(cell) == unit
        assert PLAIN(time_sql(Times(column="at"), "cell", unit), cell) == second


@given(MOMENTS)
def test_a_clocks_time_is_its_instant_or_refused_where_clocks_change(naive) -> None:
    zone = ZoneInfo("Europe/Berlin")
    folds = [naive.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    (first, second) = (fold.replace(tzinfo=None) for fold in folds)
    assert IN_BERLIN("from_iso(cell)", naive.isoformat()) == (first if first == second else None)


@pytest.mark.parametrize("form", ["%m/%d %H:%M", "%%Y-%m-%d", "%H:%M"])
def test_a_format_without_a_year_is_refused_in_words(form) -> None:
    with pytest.raises(ValueError, match=r"which has no year \(%Y or %y\)"):
        Times(column="at", format=form)
    assert Times(column="at", format=f"{form} %Y").format is not None
