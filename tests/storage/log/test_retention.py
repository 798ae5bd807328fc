"""Retention: a day that goes takes its files with it, and can be written anew."""

from datetime import timedelta

from storage.lake.removal import delete_unlisted
from storage.upkeep.retention import drop_old_days
from tests.storage.log.conftest import BEGIN, World


def drop(world: World) -> int:
    done = drop_old_days(world.engine, as_of=BEGIN + timedelta(days=200), retention_days=90)
    return len(done.dropped)


def test_a_day_that_went_begins_anew_when_history_is_sent_for_it(day) -> None:
    day.seal()
    drop(day)
    delete_unlisted(day.engine, day.lake)

    day.append(day.event("again", 5))
    day.seal()

    assert day.execute("SELECT part FROM sealed_hours WHERE rows > 0").scalars().all() == [0]
    assert sum(day.in_files().values()) == sum(day.read().values()) == 1
