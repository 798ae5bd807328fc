"""Retention: old days go whole, but for what open experiments read; what they said stays."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from cli.main import main
from domain.registration import Registration
from storage.experiments.experiments import register
from storage.log.events import RuntimeEvent, append_history
from storage.schema.partitions import create_days, existing_days, partition_name, write_past_days
from storage.tenants.projects import create_project
from storage.upkeep.gone_events import days_dropped
from storage.upkeep.retention import (
    DEFAULT_DAYS,
    compact_replays,
    delete_expired_units,
    drop_old_days,
    old_days,
)
from tests.stores.pipeline_run import run_pipeline

NOW = datetime.now(UTC)
LATER = NOW + timedelta(days=DEFAULT_DAYS + 40)
UNITS = ("exposures", "sightings", "conversions", "amounts")


def drop(engine: Any, as_of: datetime = LATER, **options: Any) -> Any:
    return drop_old_days(engine, as_of=as_of, retention_days=DEFAULT_DAYS, **options)


def dropped(engine: Any, as_of: datetime = LATER) -> list[date]:
    return [each.day for each in drop(engine, as_of).dropped]


def happened(project_id: int, at: datetime) -> RuntimeEvent:
    return RuntimeEvent(
        project_id=project_id,
        environment="production",
        event="page_view",
        session_id="s",
        occurred_at=at,
    )


def replay(store: Any, project_id: int, *moments: datetime) -> None:
    with store.engine.begin() as connection:
        append_history(connection, [happened(project_id, at) for at in moments])


def as_though_live(engine: Any) -> None:
    """Nothing of what stands was written later than on its own day."""
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM replayed_days"))


@pytest.fixture
def project_id(store) -> int:
    with store.engine.begin() as connection:
        return create_project(connection, "shop").project_id


def days_of(store: Any) -> set[str]:
    with store.engine.begin() as connection:
        return existing_days(connection)


# --- Which days go -------------------------------------------------------------------------------


def test_a_day_goes_when_it_is_older_than_the_retention_and_not_before(store, project_id) -> None:
    ended = NOW - timedelta(days=DEFAULT_DAYS + 1)
    replay(store, project_id, ended, ended + timedelta(days=1))
    as_though_live(store.engine)

    assert dropped(store.engine, NOW) == [ended.date()]
    assert partition_name(ended.date()) not in days_of(store)
    assert partition_name((ended + timedelta(days=1)).date()) in days_of(store)


def test_a_day_that_a_replay_wrote_lately_stays_until_that_is_as_old(store, project_id) -> None:
    long_ago = NOW - timedelta(days=400)
    replay(store, project_id, long_ago)

    assert dropped(store.engine, NOW) == []
    assert dropped(store.engine, NOW + timedelta(days=DEFAULT_DAYS)) == []
    assert dropped(store.engine, NOW + timedelta(days=DEFAULT_DAYS + 1)) == [long_ago.date()]


def test_of_many_writes_into_a_day_the_last_one_counts(store, project_id) -> None:
    long_ago = NOW - timedelta(days=400)
    replay(store, project_id, long_ago)
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE replayed_days SET written_on = written_on - 300"))
    replay(store, project_id, long_ago)
    replay(store, project_id, long_ago)
    written = text("SELECT count(*) FROM replayed_days")
    with store.engine.begin() as connection:
        before = connection.execute(written).scalar_one()
        compact_replays(connection)
        after = connection.execute(written).scalar_one()

    assert (before, after) == (2, 1)
    assert dropped(store.engine, NOW) == []


def test_live_days_leave_no_note_of_their_writing(store, service) -> None:
    service.post("/v1/events", {"event": "page_view", "session_id": "s"})

    with store.engine.begin() as connection:
        notes = connection.execute(text("SELECT count(*) FROM replayed_days")).scalar_one()
    assert notes == 0


def test_what_an_open_experiment_reads_stays(canary) -> None:
    first = canary.first_day
    replay(canary, canary.project_id, first - timedelta(days=28), first - timedelta(days=29))
    as_though_live(canary.engine)
    replay(canary, canary.project_id, first - timedelta(days=30))
    as_though_live(canary.engine)

    # 33 minutes before the start, 28 days before a block's close: the 29th day is read in part.
    assert dropped(canary.engine) == [(first - timedelta(days=30)).date()]


def test_what_an_experiment_reads_that_is_followed_up_stays(canary) -> None:
    """Where a run is hours behind, its whole life is read."""
    replay(canary, canary.project_id, canary.first_day - timedelta(days=20))
    as_though_live(canary.engine)
    with canary.engine.begin() as connection:
        connection.execute(text("UPDATE verdicts SET decided = true"))
        connection.execute(
            text(
                "INSERT INTO follow_ups (experiment_id, begins_at, ends_at, state)"
                " SELECT experiment_id, starts_at, starts_at + interval '7 days', 'running'"
                " FROM experiments"
            )
        )
    assert dropped(canary.engine) == []

    with canary.engine.begin() as connection:
        connection.execute(text("UPDATE follow_ups SET state = 'final'"))
    assert (canary.first_day - timedelta(days=20)).date() in dropped(canary.engine)


def test_what_a_waiting_experiment_may_come_to_read_stays(store, project_id) -> None:
    with store.engine.begin() as connection:
        register(connection, project_id, Registration())
        connection.execute(text("UPDATE experiments SET registered_at = :at"), {"at": NOW})
    replay(store, project_id, NOW - timedelta(days=20), NOW - timedelta(days=40))
    as_though_live(store.engine)

    assert dropped(store.engine) == [(NOW - timedelta(days=40)).date()]


def test_an_empty_day_goes_without_a_word(store) -> None:
    with store.engine.begin() as connection:
        create_days(connection, [NOW.date() - timedelta(days=200)])

    assert [each.events for each in drop(store.engine, NOW).dropped] == [0]
    with store.engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM dropped_days")).scalar_one() == 0


# --- Nobody waits --------------------------------------------------------------------------------


def test_a_day_that_is_being_read_is_left_for_the_next_round(store, project_id) -> None:
    replay(store, project_id, NOW - timedelta(days=200), NOW - timedelta(days=201))
    as_though_live(store.engine)
    with store.engine.begin() as reader:
        reader.execute(text("SELECT FROM runtime_events"))
        held = drop(store.engine, NOW, attempts=2)
        # Whoever came while it was tried was let through.
        replay(store, project_id, NOW)

    assert (held.dropped, len(held.held)) == ([], 2)
    assert len(dropped(store.engine, NOW)) == 2


def test_a_day_that_is_being_replayed_into_is_not_dropped_under_the_writer(
    store, project_id
) -> None:
    old = NOW - timedelta(days=200)
    replay(store, project_id, old)
    as_though_live(store.engine)
    with store.engine.begin() as writer:
        write_past_days(writer, [old.date()])
        held = drop(store.engine, NOW, attempts=2)
        append_history(writer, [happened(project_id, old)])

    assert held.held == [old.date()]
    assert dropped(store.engine, NOW) == []
    with store.engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM runtime_events")).scalar_one() == 2


# --- What stays, and what can be said no longer --------------------------------------------------


@pytest.fixture
def decided(canary) -> Any:
    """The canary, all of it decided: what the test does not end was closed by hand."""
    canary.tamper(
        "UPDATE experiments SET closed_at = starts_at + interval '70 hours'"
        " WHERE experiment_id <> '{click}'"
    )
    run_pipeline(canary.engine)
    as_though_live(canary.engine)
    canary.tamper("UPDATE verdicts SET published_at = published_at - interval '3 days'")
    # A follow-up reads the log beyond the verdict's look: here there is none.
    canary.tamper("DELETE FROM follow_ups")
    return canary


def served(engine: Any) -> Sequence[Any]:
    with engine.begin() as connection:
        verdicts = connection.execute(
            text(
                "SELECT experiment_id, contract::text, evidence::text FROM verdicts"
                " WHERE decided ORDER BY 1"
            )
        ).all()
        cells = connection.execute(text("SELECT * FROM cells ORDER BY 1, 2, 3, 4")).all()
    return [*verdicts, *cells]


def units(engine: Any) -> int:
    with engine.begin() as connection:
        return sum(
            connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            for table in (*UNITS, *(f"tombstone_{table}" for table in UNITS))
        )


def test_verdicts_and_cells_stay_to_the_byte_while_their_units_go_after_events_and_news(
    decided,
) -> None:
    before, there = served(decided.engine), units(decided.engine)
    first = decided.first_day.date()

    def kept() -> int:
        delete_expired_units(decided.engine, as_of=NOW)
        return units(decided.engine)

    assert [each.day for each in drop(decided.engine, limit=1).dropped] == [first]
    assert kept() == there
    assert dropped(decided.engine)[:2] == [first + timedelta(days=number) for number in (1, 2)]
    decided.tamper("UPDATE verdicts SET published_at = now()")
    assert kept() == there

    decided.tamper("UPDATE verdicts SET published_at = published_at - interval '3 days'")
    decided.tamper("INSERT INTO tombstone_exposures SELECT * FROM exposures LIMIT 100")
    some = delete_expired_units(decided.engine, as_of=NOW, limit=200, at_once=100)
    assert sum(some.values()) == 200
    assert units(decided.engine) == there - 100
    delete_expired_units(decided.engine, as_of=NOW, at_once=500)
    assert units(decided.engine) == 0
    assert served(decided.engine) == before


@pytest.fixture
def command(decided, monkeypatch) -> Any:
    monkeypatch.setenv("SERVICE_DATABASE_URL", decided.url)
    return lambda *words: CliRunner().invoke(main, [*words])


def test_what_stood_at_an_earlier_time_is_told_and_what_was_open_is_refused(
    decided, command
) -> None:
    whole = json.loads(command("evaluate", "--json", "--as-of", NOW.isoformat()).stdout)
    early = (decided.first_day + timedelta(hours=2)).isoformat()
    assert command("evaluate", "--as-of", early).exit_code == 0
    drop(decided.engine)

    result = command("evaluate", "--json", "--as-of", NOW.isoformat())
    refused = command("evaluate", "--as-of", early)

    assert json.loads(result.stdout) == whole
    assert refused.exit_code == 3
    assert decided.experiments["click"] in refused.stderr


def test_what_is_bound_after_the_drop_rests_on_nothing_that_went(decided) -> None:
    drop(decided.engine)
    with decided.engine.begin() as connection:
        again = register(
            connection,
            decided.project_id,
            Registration(treatment_commit="decade1", target_metric="click"),
        ).experiment_id
        gone = days_dropped(connection)

    assert gone.keys() == set(decided.experiments.values())
    assert again not in gone


def test_a_dropped_day_that_history_fills_again_is_kept_for_as_long_as_any(
    decided, command
) -> None:
    drop(decided.engine)
    with decided.engine.begin() as connection:
        other = create_project(connection, "other").project_id
    replay(decided, other, decided.first_day)

    assert command("audit", decided.experiments["click"]).exit_code == 3
    with decided.engine.begin() as connection:
        assert old_days(connection, as_of=NOW, retention_days=DEFAULT_DAYS) == []
        assert old_days(connection, as_of=LATER, retention_days=DEFAULT_DAYS) == [
            decided.first_day.date()
        ]
