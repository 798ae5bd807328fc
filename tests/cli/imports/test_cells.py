"""The readers of cells: whatever a cell's form, it means what its value means."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.imports.cells import NULL_WORDS, is_null, number_reader, outcome_reader, read_text
from cli.imports.faults import CellError
from cli.imports.map import Times
from cli.imports.times import TimeReader

NUMBERS = st.integers(-(10**9), 10**9).map(lambda millionths: millionths / 10**6)
MOMENTS = st.datetimes(datetime(2000, 1, 2), datetime(2099, 12, 30))  # noqa: DTZ001 - a clock's


@given(NUMBERS, st.sampled_from([".", ","]))
def test_a_number_is_read_as_it_is_written(number: float, decimal: str) -> None:
    text = f"{number:f}".replace(".", decimal)
    assert number_reader(decimal)(text) == number == number_reader(decimal)(number)


@given(NUMBERS)
def test_a_number_is_a_yes_exactly_where_it_is_not_zero(number: float) -> None:
    for cell in (number, repr(number), Decimal(repr(number)), f" {number} "):
        assert outcome_reader(".")(cell) == (number != 0)


@given(st.sampled_from(sorted(NULL_WORDS)), st.sampled_from(["", " ", "  "]))
def test_an_empty_cell_is_a_no_and_no_number_and_no_text(word: str, around: str) -> None:
    for cell in (word, None, float("nan"), Decimal("NaN"), f"{around}{word}{around}"):
        assert is_null(cell)
        assert outcome_reader(".")(cell) is False
        assert number_reader(".")(cell) is None
        assert read_text(cell) is None


@given(st.text())
def test_any_text_is_a_yes_a_no_or_refused(text: str) -> None:
    try:
        said = outcome_reader(".")(text)
    except CellError:
        return
    assert isinstance(said, bool)


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_a_whole_number_is_one_unit_however_a_column_holds_it(number: int) -> None:
    assert read_text(number) == read_text(float(number)) == read_text(str(number)) == str(number)


@given(MOMENTS, st.integers(-12 * 60, 14 * 60))
def test_a_time_with_an_offset_is_its_instant(naive: datetime, minutes: int) -> None:
    moment = naive.replace(tzinfo=UTC)
    local = moment + timedelta(minutes=minutes)
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    text = f"{local.replace(tzinfo=None).isoformat(sep=' ')}{sign}{hours:02}:{rest:02}"
    assert TimeReader(Times(column="at", zone="Europe/Berlin")).read(text) == moment


@given(MOMENTS)
def test_numbers_of_every_unit_are_told_apart_by_their_size(naive: datetime) -> None:
    moment = naive.replace(tzinfo=UTC, microsecond=0)
    seconds = int(moment.timestamp())
    for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        for times in (Times(column="at"), Times(column="at", unit=unit)):
            for cell in (seconds * factor, str(seconds * factor)):
                assert TimeReader(times).read(cell) == moment


@given(MOMENTS)
def test_a_clocks_time_is_its_instant_or_refused_where_clocks_change(naive: datetime) -> None:
    zone = ZoneInfo("Europe/Berlin")
    instants = {naive.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    reader = TimeReader(Times(column="at", zone="Europe/Berlin"))
    if len(instants) == 1:
        assert reader.read(naive.isoformat()) in instants
    else:
        with pytest.raises(CellError):
            reader.read(naive.isoformat())


def test_the_hour_that_clocks_leap_over_is_moved_on_where_the_map_says_so() -> None:
    times = Times(column="at", zone="Europe/Berlin", nonexistent="shift_forward")
    read = TimeReader(times).read("2026-03-29 02:30:00")
    assert read == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize("form", ["%m/%d %H:%M", "%%Y-%m-%d", "%H:%M"])
def test_a_format_without_a_year_is_refused_in_words(form: str) -> None:
    with pytest.raises(ValueError, match=r"which has no year \(%Y or %y\)"):
        Times(column="at", format=form)
    assert Times(column="at", format=f"{form} %Y").format is not None
