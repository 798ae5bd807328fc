"""Wrong files: nothing is read of a file that is not as it is listed, nor written anew from it."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import text

from storage.lake.comparison import compare_files
from storage.lake.duckdb_engine import DuckDBLimits, open_duckdb
from storage.lake.erasures import Rewriting, rewrite_files
from storage.lake.hot_days import move_old_days
from storage.lake.lake import BucketLake, open_lake
from storage.lake.reader import read_apart
from storage.lake.removal import delete_unlisted
from storage.lake.scrubbing import scrub
from storage.log.file_errors import WrongFileError
from storage.pipeline.log_relations import attach_log
from storage.upkeep.forgetting import Forgotten, forget_person
from storage.upkeep.gauges import read_gauges
from tests.repetition import also_nightly, times
from tests.storage.log.conftest import BEGIN, WatchedLake, World
from tests.stores.wrong_files import HARMS

HOUR = timedelta(hours=1)
_QUICK = ("cut", "other rows")
ERASED = also_nightly(_QUICK, [how for how in HARMS if how not in _QUICK])


@pytest.fixture
def hot(day) -> World:
    """Three hours in files that were compared; in the last there is nobody of the others."""
    day.append(*(day.event(f"last-{number}", 180 + number) for number in range(10)))
    day.seal()
    with day.engine.begin() as connection:
        assert compare_files(connection, day.lake).different == []
        connection.execute(text("DELETE FROM replayed_days"))
    return day


@pytest.fixture
def moved(hot) -> World:
    """The same, of which PostgreSQL holds what is looked up by the row alone."""
    done = move_old_days(hot.engine, hot.lake, as_of=BEGIN + timedelta(days=9), hot_days=7)
    assert [day.day for day in done.moved] == [BEGIN.date()]
    return hot


def harm(world: World, how: str, *, number: int = 1) -> Path:
    files = world.listed()
    HARMS[how](files[number], files[number - 1])
    return files[number]


def name_of(world: World, file: Path) -> str:
    return str(file.relative_to(world.lake.folder))


def forget(world: World, session: str) -> Forgotten:
    with world.engine.begin() as connection:
        return forget_person(connection, world.project_id, session)


def rewrite(world: World) -> Rewriting:
    done = rewrite_files(world.engine, world.lake)
    assert done is not None
    delete_unlisted(world.engine, world.lake)
    return done


def gauges(world: World) -> tuple[int, bool]:
    """How many files are noted as wrong, and whether an erasure waits."""
    with world.engine.begin() as connection:
        read = read_gauges(connection)
    return read.lake_wrong_files, read.erasure_age_seconds > 0


# --- Readers --------------------------------------------------------------------------------------


def test_an_hour_whose_file_is_wrong_is_read_from_postgresql_while_that_has_it(hot) -> None:
    whole, right = hot.read(), hot.listed()[1].read_bytes()

    for how in HARMS:
        wrong = harm(hot, how)
        assert hot.read() == whole, how
        wrong.write_bytes(right)


def test_a_wrong_file_that_alone_holds_its_events_is_named_and_every_other_hour_read(moved) -> None:
    last, right = moved.read(BEGIN + 3 * HOUR, BEGIN + 4 * HOUR), moved.listed()[1].read_bytes()

    for how in HARMS:
        wrong = harm(moved, how)
        with pytest.raises(WrongFileError) as error:
            moved.read()
        assert list(error.value.faults) == [name_of(moved, wrong)], how
        assert str(wrong) in str(error.value)
        cure = ": put the right file back" + ", or set SERVICE" * (how == "missing")
        assert cure in str(error.value)
        # A project's keys are not the operator's.
        assert str(moved.lake.folder) not in error.value.sentence
        assert moved.read(BEGIN + 3 * HOUR, BEGIN + 4 * HOUR) == last
        wrong.write_bytes(right)


def test_who_asks_a_wrong_hour_for_its_users_alone_gets_them_from_postgresql(moved) -> None:
    def named() -> Any:
        """The last hour's events, and all before it that name a user."""
        extent = replace(
            moved.extent(BEGIN, BEGIN + 4 * HOUR),
            received_from=moved.extent(BEGIN + 3 * HOUR, BEGIN).received_from,
        )
        with (
            read_apart(moved.engine, moved.lake) as log,
            open_duckdb(DuckDBLimits()) as engine,
            log.rows(extent) as rows,
        ):
            attach_log(engine, rows)
            return Counter(engine.rows("SELECT * FROM events"))

    before = named()
    assert sum(count for row, count in before.items() if row[8]) == 32

    harm(moved, "other rows")
    assert named() == before

    # A month after the hot days PostgreSQL has an event of each user and session.
    moved.execute("UPDATE sealed_hours SET moved_at = hour + interval '40 days'")
    with pytest.raises(WrongFileError):
        named()


def test_a_process_reads_a_file_once_to_verify_it_and_again_when_it_was_replaced(hot) -> None:
    steps: list[str] = []
    watched = World(
        engine=hot.engine,
        lake=WatchedLake(hot.lake.folder, steps.append),
        project_id=hot.project_id,
    )
    whole = watched.read()
    assert steps.count("read") <= len(hot.listed())
    steps.clear()

    assert watched.read() == whole
    assert steps == []

    file = hot.listed()[1]
    file.with_suffix(".copy").write_bytes(file.read_bytes())
    file.with_suffix(".copy").rename(file)
    assert watched.read() == whole
    assert steps.count("read") == 1


@pytest.fixture
def in_bucket(hot) -> World:
    """The three hours in an object store."""
    bucket = open_lake(f"memory://{os.urandom(4).hex()}")
    assert isinstance(bucket, BucketLake)
    for path in hot.listed():
        with bucket.writing(name_of(hot, path)) as copy:
            copy.write_bytes(path.read_bytes())
    return replace(hot, lake=bucket)


@pytest.mark.parametrize("how", also_nightly(["other rows"], ["another byte", "missing"]))
def test_a_wrong_object_of_a_bucket_is_not_read(hot, in_bucket, how) -> None:
    whole = in_bucket.read()
    assert whole == hot.read()

    wrong = harm(hot, how)
    in_bucket.lake.delete(name_of(hot, wrong))
    if wrong.exists():
        with in_bucket.lake.writing(name_of(hot, wrong)) as copy:
            copy.write_bytes(wrong.read_bytes())

    assert in_bucket.read() == whole


def test_while_a_bucket_is_away_hot_days_are_read_from_postgresql(in_bucket, monkeypatch) -> None:
    whole = in_bucket.read()

    def away(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no route to the endpoint")

    monkeypatch.setattr(type(in_bucket.lake.filesystem), "find", away)
    assert in_bucket.read() == whole


# --- Erasures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ERASED)
def test_a_wrong_file_of_a_hot_day_is_written_anew_from_postgresql_without_the_person(
    hot, how
) -> None:
    wrong = harm(hot, how)
    forget(hot, "s3")
    rest = hot.read()

    done = rewrite(hot)

    assert (done.reopened, done.wrong) == (1, [])
    assert not wrong.exists()
    assert hot.read() == rest
    hot.seal()
    assert hot.read() == hot.in_files() == rest
    assert not [row for row in hot.in_files() if row[3] == "s3"]
    assert gauges(hot) == (0, False)


@pytest.mark.parametrize("how", ERASED)
def test_a_wrong_file_that_alone_holds_its_events_stops_nobody_elses_erasure(moved, how) -> None:
    whole = moved.read()
    right = moved.listed()[1].read_bytes()
    wrong = harm(moved, how)
    # Both are in the first file too; the last is in no other.
    for session in ("s3", "s4", "last-1"):
        forget(moved, session)

    done = rewrite(moved)

    name = name_of(moved, wrong)
    assert (done.files, done.reopened, done.wrong) == (3, 0, [name])
    assert wrong in moved.listed()
    for path in set(moved.listed()) - {wrong}:
        assert not {"s3", "s4", "last-1"} & {*pq.read_table(path)["session_id"].to_pylist()}
    assert gauges(moved) == (1, True)
    assert forget(moved, "s6").wrong_files == 1

    # The right file is put back: nobody reads the forgotten from it, the next night ends it.
    wrong.write_bytes(right)
    gone = {"s3", "s4", "s6", "last-1"}
    rest = Counter({row: count for row, count in whole.items() if row[3] not in gone})
    assert moved.read() == rest
    assert rewrite(moved).erasures == 4
    assert moved.read() == moved.in_files() == rest
    assert gauges(moved) == (0, False)


@times(gate=2, deep=40)
def test_whoever_reads_while_people_are_erased_reads_one_state_of_the_log(day, times) -> None:
    day.seal()
    states = [day.read()]
    people = [f"s{number}" for number in range(times)]
    for person in people:
        states.append(Counter({row: n for row, n in states[-1].items() if row[3] != person}))

    with _reading(day) as readings:
        for person in people:
            forget(day, person)
            rewrite_files(day.engine, day.lake)
            delete_unlisted(day.engine, day.lake)

    assert readings
    positions = [states.index(reading) for reading in readings]
    assert positions == sorted(positions)
    assert day.read() == day.in_files() == states[-1]


@contextmanager
def _reading(world: World) -> Iterator[list[Any]]:
    """Reads the log over and over; ends with a reading that began after the last change."""
    readings: list[Any] = []
    over = threading.Event()

    def read() -> None:
        while True:
            is_last = over.is_set()
            try:
                readings.append(world.read())
            except Exception as error:  # noqa: BLE001 - whatever it is, a reader met it
                readings.append(repr(error))
            if is_last:
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield readings
    finally:
        over.set()
        reader.join()


# --- Scrubbing ------------------------------------------------------------------------------------


def scrubbed(world: World, **options: Any) -> list[tuple[str, str]]:
    with world.engine.begin() as connection:
        return [(file.name, file.reason) for file in scrub(connection, world.lake, **options)]


def read_last(world: World) -> list[Any]:
    query = "SELECT verified_at FROM sealed_hours WHERE file IS NOT NULL ORDER BY hour"
    return list(world.execute(query).scalars())


def test_each_run_reads_the_files_that_were_read_longest_ago(moved) -> None:
    for turn in range(2):
        for number in range(len(moved.listed())):
            before = read_last(moved)
            assert scrubbed(moved, limit=1) == []
            after = read_last(moved)
            assert [at for at, was in zip(after, before, strict=True) if at != was] == [
                after[number]
            ], turn


@pytest.mark.parametrize("how", also_nightly(["cut"], ["missing", "other rows"]))
def test_what_can_be_seen_of_a_wrong_file_without_reading_it_is_seen_by_each_run(
    moved, how
) -> None:
    right = moved.listed()[1].read_bytes()
    wrong = harm(moved, how)

    ((name, reason),) = scrubbed(moved, limit=0)

    assert name == name_of(moved, wrong)
    assert reason
    assert gauges(moved)[0] == 1

    wrong.write_bytes(right)
    assert scrubbed(moved, limit=0) == []
    assert gauges(moved)[0] == 0


def test_another_byte_is_seen_in_its_turn_or_once_it_has_set_an_experiment_aside(moved) -> None:
    wrong = harm(moved, "another byte", number=2)
    name = name_of(moved, wrong)
    assert scrubbed(moved, limit=0) == []
    assert [each for each, _ in scrubbed(moved, limit=3)] == [name]
