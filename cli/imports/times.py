"""The reader of times, in SQL: ISO 8601, a format of the map, or numbers since the Unix epoch."""

import re
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import duckdb

from cli.imports.map import Times
from cli.imports.tables import literal

_NUMBER = re.compile(r"-?\d+(?:\.\d*)?", re.ASCII)
# Microseconds of each unit of an epoch time.
_MICROSECONDS = {
    "s": Decimal(1_000_000),
    "ms": Decimal(1000),
    "us": Decimal(1),
    "ns": Decimal("0.001"),
}
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# 2000 to 2100: numbers of seconds and of milliseconds in these years do not overlap.
_FIRST, _END = 946_684_800_000_000, 4_133_980_800_000_000

# A time is a TIMESTAMP in UTC; NULL where a cell is none.
_MACROS = r"""
CREATE MACRO from_epoch(cell, scale) AS CASE
    WHEN regexp_full_match(stripped(cell), '-?\d{1,19}(\.\d*)?')
        AND TRY_CAST(stripped(cell) AS DECIMAL(29, 9)) * scale BETWEEN {first} AND {end} - 1
    THEN make_timestamp(CAST(trunc(CAST(stripped(cell) AS DECIMAL(29, 9)) * scale) AS BIGINT))
END;
CREATE MACRO offset_at(time) AS
    timezone('{zone}', timezone('UTC', time)) - time;
CREATE MACRO is_clock(time, clock) AS timezone('{zone}', timezone('UTC', time)) = clock;
-- A clock shows a time once, twice or never: by its offsets a day before and after (PEP 495).
CREATE MACRO between_offsets(clock, earlier, later) AS CASE
    WHEN earlier = later THEN earlier
    WHEN is_clock(earlier, clock) AND is_clock(later, clock) THEN {twice}
    WHEN is_clock(earlier, clock) THEN earlier
    WHEN is_clock(later, clock) THEN later
    ELSE {never}
END;
CREATE MACRO from_clock(clock) AS {from_clock};
CREATE MACRO iso_text(cell) AS
    replace(regexp_replace(stripped(cell), ' ?(UTC|GMT|Z)$', '+00'), ',', '.');
CREATE MACRO from_iso(cell) AS CASE
    -- The form of nearly all cells, which costs least.
    WHEN regexp_full_match(cell, '\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d')
    THEN from_clock(TRY_CAST(cell AS TIMESTAMP))
    WHEN regexp_full_match(iso_text(cell),
        '\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?')
    THEN from_clock(TRY_CAST(iso_text(cell) AS TIMESTAMP))
    WHEN regexp_full_match(iso_text(cell),
        '\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)? ?[+-]\d\d(:?\d\d)?')
    THEN timezone('UTC', TRY_CAST(regexp_replace(iso_text(cell), ' ([+-])', '\1') AS TIMESTAMPTZ))
END;
"""


def define_times(database: duckdb.DuckDBPyConnection, times: Times) -> None:
    """Defines the readers of times by a map."""
    zone = times.zone.replace("'", "")
    first, last = (
        "clock - offset_at(clock - INTERVAL 1 DAY)",
        "clock - offset_at(clock + INTERVAL 1 DAY)",
    )
    words = {
        "first": str(_FIRST),
        "end": str(_END),
        "zone": zone,
        "twice": {"refuse": "NULL", "earlier": "earlier", "later": "later"}[times.ambiguous],
        "never": "NULL" if times.nonexistent == "refuse" else "earlier",
        "from_clock": "clock" if zone == "UTC" else f"between_offsets(clock, {first}, {last})",
    }
    text = _MACROS
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    database.execute(text)


def time_sql(times: Times, cell: str, unit: str | None) -> str:
    """Returns the SQL that reads a cell as a time.

    Args:
        cell: SQL.
    """
    if times.format is not None:
        parsed = f"try_strptime(stripped({cell}), {literal(times.format)})"
        has_offset = re.search(r"(?<!%)(?:%%)*%[zZ]", times.format) is not None
        return f"timezone('UTC', {parsed})" if has_offset else f"from_clock({parsed})"
    epoch = "NULL" if unit is None else f"from_epoch({cell}, {_MICROSECONDS[unit]})"
    return epoch if times.unit is not None else f"coalesce({epoch}, from_iso({cell}))"


def unit_of(number: str) -> str | None:
    """Returns the unit of a number since 1970 of the years 2000 to 2100; None where it has none."""
    if _NUMBER.fullmatch(number) is None:
        return None
    fitting = (
        unit for unit, size in _MICROSECONDS.items() if _FIRST <= Decimal(number) * size < _END
    )
    return next(fitting, None)


def time_fault(times: Times, text: str, unit: str | None) -> str:
    """Returns why a text is no time."""
    if times.format is None and (times.unit is not None or _NUMBER.fullmatch(text)):
        return _number_fault(times, text, unit)
    zone = ZoneInfo(times.zone)
    try:
        clock = (
            datetime.fromisoformat(text)
            if times.format is None
            else datetime.strptime(text, times.format)  # noqa: DTZ007 - the zone is the map's
        )
        before, after = (clock.replace(tzinfo=zone, fold=each).utcoffset() for each in (0, 1))
    except ValueError:
        before = after = None
    # Python reads forms that DuckDB does not, such as 20261025T010000Z.
    if before is None or after is None or before == after:
        if times.format is not None:
            return f"is not of the format {times.format!r}"
        return (
            "is no ISO 8601 time such as 2026-10-25T01:00:00Z; name another form by format in"
            ' [times], such as format = "%m/%d/%Y %H:%M"'
        )
    if before > after:
        return (
            f"is twice in {times.zone}, where clocks go back; give times with an offset, or set"
            ' ambiguous = "earlier" or "later" in [times]'
        )
    return (
        f"does not exist in {times.zone}, where clocks go forward; is zone right? To move"
        ' such times on, set nonexistent = "shift_forward" in [times]'
    )


def _number_fault(times: Times, text: str, unit: str | None) -> str:
    own = unit_of(text)
    if times.unit is not None:
        if _NUMBER.fullmatch(text) is None:
            return f"is no number of {UNIT_NAMES[times.unit]}"
        return f"as {UNIT_NAMES[times.unit]} since 1970 is no time of 2000 to 2100"
    if own is None or unit is None:
        return (
            "is no time since 1970 between 2000 and 2100 in seconds, milliseconds,"
            " microseconds or nanoseconds; name another form by format in [times], such as"
            ' format = "%Y%m%d"'
        )
    return (
        f"reads as {UNIT_NAMES[own]} since 1970, cells above it as {UNIT_NAMES[unit]};"
        " set unit in [times]"
    )
