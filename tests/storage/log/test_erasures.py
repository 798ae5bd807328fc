"""Erasures: who was forgotten is in no reading at once, and in no file after the night."""

from collections import Counter

import duckdb
import pytest

from storage.lake.comparison import compare_files
from storage.lake.erasures import rewrite_files
from storage.lake.removal import delete_unlisted
from storage.lake.sealing import Sealer
from storage.upkeep.forgetting import forget_person
from tests.storage.log.conftest import WatchedLake, World


@pytest.fixture
def person(day) -> World:
    """The day with a person in it: a user, who shares no session with anybody."""
    day.append(
        *(
            day.event(f"own-{number % 2}", 20 + number, pseudonym=b"\xab" * 16)
            for number in range(60)
        )
    )
    return day


def forget(world) -> None:
    with world.engine.begin() as connection:
        forget_person(connection, world.project_id, b"\xab" * 16)


def of_person(rows: Counter) -> int:
    return sum(count for row, count in rows.items() if row[8] == "ab" * 16 or "own-" in row[3])


def test_nobody_reads_from_a_file_who_was_forgotten(person) -> None:
    person.seal()
    assert of_person(person.read()) == 60

    forget(person)

    assert of_person(person.in_files()) == 60
    assert of_person(person.read()) == 0
    assert sum(person.read().values()) == 160


def test_the_nights_rewriting_leaves_no_trace_in_any_file(person) -> None:
    person.seal()
    forget(person)
    before = person.read()

    rewriting = rewrite_files(person.engine, person.lake)
    deleted = delete_unlisted(person.engine, person.lake)

    assert (rewriting.erasures, rewriting.files, deleted) == (3, 2, 2)
    assert person.files() == person.listed()
    for path in person.listed():
        assert not any(trace in path.read_bytes() for trace in (b"own-", b"ab" * 16))
        rows = duckdb.read_parquet(str(path)).fetchall()
        assert not any("own-" in str(row) or "ab" * 16 in str(row) for row in rows)
    assert person.read() == person.in_files() == before
    assert person.execute("SELECT count(*) FROM erasures").scalar_one() == 0


def test_a_rewritten_file_is_compared_with_the_log_again(person) -> None:
    person.seal()
    forget(person)
    with person.engine.begin() as connection:
        # The third file holds nothing of the person, and waits for the night all the same.
        assert compare_files(connection, person.lake).files == 0
    rewrite_files(person.engine, person.lake)

    with person.engine.begin() as connection:
        compared = compare_files(connection, person.lake)

    assert (compared.files, compared.different) == (3, [])


def test_a_file_that_held_that_person_alone_is_listed_no_more(world) -> None:
    world.append(world.event("only", 5, pseudonym=b"\xab" * 16))
    world.seal()
    forget(world)
    rewrite_files(world.engine, world.lake)
    delete_unlisted(world.engine, world.lake)

    assert world.files() == []
    assert sum(world.read().values()) == 0


def test_who_is_forgotten_while_a_file_is_written_is_left_out_of_it(person) -> None:
    forgotten = False

    def meanwhile(step: str) -> None:
        nonlocal forgotten
        if step == "checked" and not forgotten:
            forgotten = True
            forget(person)

    Sealer(engine=person.engine, lake=WatchedLake(person.lake.folder, meanwhile)).seal()

    assert of_person(person.in_files()) > 0
    assert of_person(person.read()) == 0
    rewrite_files(person.engine, person.lake)
    assert of_person(person.in_files()) == 0


def test_who_comes_back_after_being_forgotten_is_counted_again(person) -> None:
    person.seal()
    forget(person)
    person.append(person.event("own-1", 25, pseudonym=b"\xab" * 16))
    assert of_person(person.read()) == 1

    person.seal()
    assert of_person(person.read()) == 1
    rewrite_files(person.engine, person.lake)
    assert of_person(person.read()) == of_person(person.in_files()) == 1


def test_a_session_is_forgotten_in_its_own_project_alone(day) -> None:
    other = day.execute(
        "INSERT INTO projects (name, created_at) VALUES ('other', now()) RETURNING project_id"
    ).scalar_one()
    day.append(day.event("s7", 12))
    day.execute(
        "INSERT INTO runtime_events SELECT :other, environment, event, session_id, occurred_at,"
        " received_at, commit_sha, route, pseudonym, trusted, event_id, value, flags, properties,"
        " signed FROM runtime_events WHERE session_id = 's7'",
        other=other,
    )
    day.seal()
    with day.engine.begin() as connection:
        forget_person(connection, other, "s7")

    rewrite_files(day.engine, day.lake)

    assert {row[0] for row in day.in_files() if row[3] == "s7"} == {day.project_id}
