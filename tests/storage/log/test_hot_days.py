"""Hot days: an older day is in the lake alone, and every reader of the log gets the same events."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from storage.lake.comparison import compare_files
from storage.lake.erasures import rewrite_files
from storage.lake.hot_days import DayMove, move_old_days
from storage.lake.reader import keep_log
from storage.lake.removal import delete_unlisted
from storage.upkeep.forgetting import forget_person
from storage.upkeep.retention import drop_old_days
from storage.views.history_counts import names_in_log
from tests.storage.log.conftest import BEGIN, World

LATER = BEGIN + timedelta(days=9)


def move(world: World, *, as_of: datetime = LATER, **options: Any) -> DayMove:
    return move_old_days(world.engine, world.lake, as_of=as_of, hot_days=7, **options)


def seal(world: World) -> None:
    """Seals and compares, as the hourly run and its check do; nothing was written later."""
    world.seal()
    with world.engine.begin() as connection:
        assert compare_files(connection, world.lake).different == []
        connection.execute(text("DELETE FROM replayed_days"))


def rows_stored(world: World) -> int:
    return sum(world.stored().values())


@pytest.fixture
def sealed(day) -> World:
    """The day in files that were compared, with a night between it and whoever wrote it."""
    seal(day)
    return day


def test_a_moved_day_is_read_from_its_files_as_it_was(sealed) -> None:
    whole = sealed.read()

    (moved,) = move(sealed).moved

    assert moved.day == BEGIN.date()
    assert rows_stored(sealed) == moved.kept < sum(whole.values())
    assert sealed.read() == whole
    assert move(sealed).moved == []


def test_a_day_stays_until_it_is_older_than_the_hot_days(sealed) -> None:
    assert move(sealed, as_of=BEGIN + timedelta(days=7, hours=23)).moved == []
    assert len(move(sealed, as_of=BEGIN + timedelta(days=8)).moved) == 1


def test_postgresql_keeps_what_is_looked_up_by_the_row(day) -> None:
    day.append(
        day.event("a", 100, event="seen"),
        *(day.event("a", minutes, commit_sha="abc1234") for minutes in (101, 121, 111)),
        *(day.event("a", minutes, route="/rare") for minutes in (102, 122, 112)),
    )
    seal(day)
    named = Counter({row: count for row, count in day.stored().items() if row[8]})
    assert named
    looked_up = text("""
        SELECT event, commit_sha, route, max(received_at), min(occurred_at)
        FROM (
            SELECT event, NULL AS commit_sha, NULL AS route, received_at, NULL AS occurred_at
            FROM runtime_events
            UNION ALL SELECT NULL, commit_sha, NULL, received_at, NULL FROM runtime_events
            UNION ALL SELECT NULL, NULL, route, received_at, NULL FROM runtime_events
        ) AS names GROUP BY event, commit_sha, route ORDER BY 1, 2, 3
    """)

    def stored() -> Any:
        with day.engine.begin() as connection:
            names = names_in_log(
                connection,
                day.project_id,
                "production",
                events=["page_view", "click", "order", "never"],
                commits=["c0ffee0", "abc1234", "decade1"],
            )
            return names, connection.execute(looked_up).all()

    before = stored()
    move(day)

    assert stored() == before
    assert named <= day.stored()


def test_of_users_it_keeps_their_sessions_alone_once_no_increment_asks_when(sealed) -> None:
    whole = sealed.read()
    sealed.append(*(sealed.event("often", 60 + n, pseudonym=b"\xee" * 16) for n in range(20)))
    seal(sealed)
    move(sealed)
    assert sum(count for row, count in sealed.stored().items() if row[3] == "often") == 20

    assert move(sealed, as_of=BEGIN + timedelta(days=37, hours=23)).moved == []
    (moved,) = move(sealed, as_of=BEGIN + timedelta(days=38)).moved

    assert sum(count for row, count in sealed.stored().items() if row[3] == "often") == 1
    assert moved.freed >= 0
    assert move(sealed, as_of=BEGIN + timedelta(days=39)).moved == []
    with sealed.engine.begin() as connection:
        assert forget_person(connection, sealed.project_id, b"\xee" * 16).sessions == 1
    assert sealed.read() == whole


def test_a_day_stays_while_an_hour_of_it_is_in_no_file(day) -> None:
    day.execute("DELETE FROM replayed_days")
    assert move(day).moved == []

    day.seal()
    # In files, but nobody compared them with the events.
    day.execute("DELETE FROM replayed_days")
    assert move(day).moved == []

    seal(day)
    day.append(day.event("late", 30))
    day.execute("DELETE FROM replayed_days")
    assert move(day).moved == []


def test_a_day_that_was_written_lately_stays(sealed) -> None:
    sealed.append(sealed.event("late", 30))
    sealed.seal()
    with sealed.engine.begin() as connection:
        compare_files(connection, sealed.lake)
    written_on = datetime.now(UTC)

    assert move(sealed, as_of=written_on + timedelta(days=7)).moved == []
    assert len(move(sealed, as_of=written_on + timedelta(days=8)).moved) == 1


@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_a_day_stays_whose_file_cannot_be_read_back(sealed, harm) -> None:
    whole = sealed.read()
    path = sealed.listed()[1]
    content = path.read_bytes()
    path.unlink()
    if harm == "changed":
        path.write_bytes(content[:-1] + b"\0")

    done = move(sealed)

    assert (done.moved, done.held) == ([], [BEGIN.date()])
    assert rows_stored(sealed) == sum(whole.values())


def test_a_day_that_is_being_read_is_left_for_the_next_night(sealed) -> None:
    with sealed.engine.begin() as reader:
        keep_log(reader)
        held = move(sealed, attempts=2)

    assert (held.moved, held.held) == ([], [BEGIN.date()])
    assert len(move(sealed).moved) == 1


def test_history_of_a_moved_day_is_read_with_it_and_moves_in_its_turn(sealed) -> None:
    move(sealed)
    sealed.append(sealed.event("late", 30), sealed.event("late", 90))
    whole = sealed.read()
    assert sum(whole.values()) == 162

    seal(sealed)
    assert sealed.read() == whole
    kept = rows_stored(sealed)
    assert len(move(sealed).moved) == 1

    assert sealed.read() == whole
    assert rows_stored(sealed) < kept


@pytest.mark.parametrize("moved", [False, True], ids=["hot", "moved"])
def test_of_a_session_that_only_claims_a_user_the_write_key_s_events_stay(day, moved) -> None:
    user = b"\xcd" * 16
    day.append(
        *(day.event(session, 20) for session in ("browser", "both")),
        *(day.event(session, 21, pseudonym=user) for session in ("browser", "both")),
        day.event("both", 22, event="order", trusted=True),
    )
    seal(day)
    whole = day.read()
    if moved:
        move(day)

    with day.engine.begin() as connection:
        erased = forget_person(connection, day.project_id, user, lake=day.lake)

    def is_erased(row: tuple[Any, ...]) -> bool:
        return row[3] == "browser" or (row[3] == "both" and not row[9])

    rest = Counter({row: count for row, count in whole.items() if not is_erased(row)})
    assert (erased.sessions, erased.kept_sessions) == (2, 1)
    assert day.read() == rest
    rewrite_files(day.engine, day.lake)
    assert day.read() == day.in_files() == rest
    assert not [row for row in day.stored() if is_erased(row)]
    with day.engine.begin() as connection:
        # PostgreSQL holds only some of what a file of a moved day holds.
        assert compare_files(connection, day.lake).different == []


def test_where_no_file_tells_whose_a_session_is_its_unit_keeps_its_name(sealed) -> None:
    user = b"\xcd" * 16
    sealed.append(sealed.event("browser", 21, pseudonym=user))
    seal(sealed)
    move(sealed)
    sealed.listed()[0].unlink()
    with sealed.engine.begin() as connection:
        assert (
            forget_person(connection, sealed.project_id, user, lake=sealed.lake).kept_sessions == 1
        )


def test_a_moved_day_goes_with_its_files_at_the_end_of_the_retention_and_can_begin_anew(
    sealed,
) -> None:
    events = sum(sealed.read().values())
    move(sealed)

    (dropped,) = drop_old_days(
        sealed.engine, as_of=BEGIN + timedelta(days=91), retention_days=90
    ).dropped

    assert (dropped.day, dropped.events) == (BEGIN.date(), events)
    assert sealed.listed() == []
    assert rows_stored(sealed) == 0

    # History that is sent for it begins it anew.
    delete_unlisted(sealed.engine, sealed.lake)
    sealed.append(sealed.event("again", 5))
    sealed.seal()
    assert sealed.execute("SELECT part FROM sealed_hours WHERE rows > 0").scalars().all() == [0]
    assert sum(sealed.in_files().values()) == sum(sealed.read().values()) == 1
