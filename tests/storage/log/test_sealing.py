"""Sealing: an hour that has ended becomes a file, and no event is lost or counted twice."""

import os
import stat
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest
from sqlalchemy import text

from storage.lake.comparison import compare_files
from storage.lake.lake import FolderLake
from storage.lake.sealing import Sealer
from storage.log.events import copy_history, event_lines
from storage.schema.partitions import write_past_days
from tests.storage.log.conftest import BEGIN


def without_flags(rows: Counter) -> Counter:
    """Flags are compared by what they say: PostgreSQL writes them with spaces."""
    return Counter({row[:13]: count for row, count in rows.items()})


def test_sealed_files_hold_exactly_what_the_log_held(day) -> None:
    run = day.seal()

    assert without_flags(day.in_files()) == without_flags(day.stored())
    assert run.rows == 160
    assert run.size == sum(path.stat().st_size for path in day.listed())
    assert day.files() == sorted(day.listed())
    assert {row[13] for row in day.in_files()} == {None, '{"b":true,"long-name":"b","ä":"x"}'}
    properties = [pq.read_table(path)["properties"].to_pylist() for path in day.listed()]
    answer = Counter(text for texts in properties for text in texts)
    assert answer == {None: 145, '{"note": "it\'s"}': 15}


def test_the_lake_is_its_owners_alone(day) -> None:
    before = os.umask(0o077)
    day.seal()
    os.umask(before)

    assert stat.S_IMODE(day.lake.folder.stat().st_mode) == 0o700


def test_an_hour_without_events_is_sealed_without_a_file(day) -> None:
    day.seal()

    (sealed, empty) = day.execute(
        "SELECT count(*), count(*) FILTER (WHERE file IS NULL AND rows = 0) FROM sealed_hours"
    ).one()
    assert (sealed, empty) == (24, 21)


def test_an_hour_that_has_not_ended_stays_open(service, tmp_path) -> None:
    service.post("/v1/events", {"event": "click", "session_id": "s1"})
    before = datetime.now(UTC)

    Sealer(engine=service.store.engine, lake=FolderLake(tmp_path)).seal()

    newest = service.in_store(
        lambda connection: connection.execute(text("SELECT max(hour) FROM sealed_hours")).scalar()
    )
    assert newest is None or newest + timedelta(hours=1) <= before + timedelta(minutes=5)


def test_a_second_run_writes_nothing(day) -> None:
    day.seal()
    before = {path: path.stat().st_mtime_ns for path in day.files()}

    again = day.seal()

    assert (again.hours, again.rows) == (0, 0)
    assert {path: path.stat().st_mtime_ns for path in day.files()} == before


def test_history_that_comes_to_a_sealed_hour_makes_a_further_part_of_it(day) -> None:
    day.seal()
    first = day.listed()
    day.append(*(day.event("late", 30 + number, event="order") for number in range(60)))

    assert sum(day.read().values()) == 220
    day.seal()

    parts = day.execute(
        "SELECT part, count(*) AS hours, sum(rows)::int AS rows FROM sealed_hours"
        " WHERE rows > 0 GROUP BY part ORDER BY part"
    ).all()
    assert [tuple(row) for row in parts] == [(0, 3, 160), (1, 2, 60)]
    assert set(first) < set(day.listed())
    assert without_flags(day.in_files()) == without_flags(day.stored())
    assert without_flags(day.read()) == without_flags(day.stored())


def test_history_of_open_and_closed_hours_is_sealed_whole(day) -> None:
    day.seal()
    day.append(day.event("late", 5), day.event("late", 24 * 60 + 5))
    day.append(day.event("later", 6), day.event("later", 24 * 60 + 6))

    day.seal()
    day.append(day.event("last", 7), day.event("last", 24 * 60 + 7))
    assert without_flags(day.read()) == without_flags(day.stored())
    day.seal()

    assert without_flags(day.in_files()) == without_flags(day.stored())
    assert sum(day.in_files().values()) == 166


def test_hours_stay_open_while_history_is_being_written(day) -> None:
    with day.engine.begin() as connection:
        # As an import does, which takes the lock of the log at its end alone.
        write_past_days(connection, [BEGIN.date()])
        copy_history(connection, [event_lines([day.event("slow", 5)], history=True).text.encode()])
        run = day.seal()

    assert run.hours == 0
    day.seal()
    assert sum(day.in_files().values()) == 161


def test_a_run_that_has_used_its_time_leaves_the_rest_to_the_next(day) -> None:
    run = Sealer(engine=day.engine, lake=day.lake).seal(most_seconds=0)
    assert run is not None

    assert (run.hours, run.waiting) == (0, 24)
    assert without_flags(day.read()) == without_flags(day.stored())
    day.seal()
    assert sum(day.in_files().values()) == 160


def test_times_of_any_year_are_compared_to_the_microsecond(day) -> None:
    occurred = "CASE session_id WHEN 's1' THEN '2000-01-01 00:00:00.000001+00'"
    occurred += " WHEN 's2' THEN '2099-12-31 23:59:59.999999+00' ELSE occurred_at END"
    day.execute(f"UPDATE runtime_events SET occurred_at = {occurred}")
    day.seal()

    with day.engine.begin() as connection:
        compared = compare_files(connection, day.lake)

    assert (compared.files, compared.different) == (3, [])


# In each hour the first and the last event: all sums of times and of texts stay.
EXCHANGED_TIMES = """
UPDATE runtime_events AS e
SET occurred_at = CASE WHEN e.occurred_at = p.first THEN p.last ELSE p.first END
FROM (
    SELECT date_trunc('hour', received_at) AS hour, min(occurred_at) AS first,
        max(occurred_at) AS last
    FROM runtime_events GROUP BY 1
) AS p
WHERE date_trunc('hour', e.received_at) = p.hour AND e.occurred_at IN (p.first, p.last)
"""


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("UPDATE runtime_events SET value = 7 WHERE value IS NOT NULL", "checksums"),
        ("UPDATE runtime_events SET route = '/else' WHERE route = '/list'", "checksums"),
        (
            """UPDATE runtime_events SET flags = '{"b": false}' WHERE flags IS NOT NULL""",
            "checksums",
        ),
        ("DELETE FROM runtime_events WHERE session_id = 's1'", "checksums"),
        (EXCHANGED_TIMES, "checksums"),
        ("UPDATE sealed_hours SET sha256 = '' WHERE file IS NOT NULL", "SHA-256"),
        ("UPDATE sealed_hours SET file = 'no-' || file", "missing"),
    ],
)
def test_a_file_that_differs_from_the_log_is_named(day, damage, reason) -> None:
    day.seal()
    day.execute(damage)

    with day.engine.begin() as connection:
        result = compare_files(connection, day.lake)

    assert len(result.different) == 3
    assert all(reason in each.reason for each in result.different)
