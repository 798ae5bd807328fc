"""Hot days: verdicts are the same to the byte, whatever part of the log is in the lake alone."""

from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, text

from cli.main import main
from orchestration.definitions import definitions
from storage.lake.comparison import compare_files
from storage.lake.hot_days import move_old_days
from storage.lake.lake import open_lake
from storage.lake.scrubbing import scrub
from storage.lake.sealing import Sealer
from storage.log.events import RuntimeEvent, append_history
from storage.schema.clock import claim_derived_tables
from tests.processes.api_process import eventually
from tests.processes.command import Command
from tests.repetition import also_nightly
from tests.stores.barrier import Place, barrier
from tests.stores.derived import derived_of, served_of
from tests.stores.emptied import empty_derived_tables
from tests.stores.past import Bookmark, walk_to
from tests.stores.pipeline_run import run_pipeline

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def lake(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("SERVICE_LAKE", str(tmp_path / "lake"))


def seal(engine: Engine) -> None:
    """Seals and compares, as the hourly run and its check do; nothing was written later."""
    lake = open_lake()
    assert Sealer(engine=engine, lake=lake).seal()
    with engine.begin() as connection:
        assert compare_files(connection, lake).different == []
        connection.execute(text("DELETE FROM replayed_days"))


def moved(engine: Engine) -> int:
    """Moves what is older than a day; returns how many days that were."""
    return len(move_old_days(engine, open_lake(), as_of=NOW, hot_days=1).moved)


def command(*words: str) -> Result:
    return CliRunner().invoke(main, [*words])


def shorten(canary) -> None:
    """Makes an experiment end within the hours that PostgreSQL reads by itself."""
    canary.tamper(
        "UPDATE experiments SET policy = jsonb_set(policy, '{{horizon_seconds}}', '3600')"
        " WHERE experiment_id = '{view}'"
    )


def test_derived_tables_that_were_lost_are_computed_anew_from_the_lake(canary) -> None:
    shorten(canary)
    run_pipeline(canary.engine)
    seal(canary.engine)
    derived, served = derived_of(canary.engine), served_of(canary.engine)
    assert moved(canary.engine) == 3
    with canary.engine.begin() as connection:
        claim_derived_tables(connection)
        empty_derived_tables(connection)

    run_pipeline(canary.engine)

    assert served_of(canary.engine) == served
    # An experiment that is over when it is first read is stored as counts: a rebuild stores all.
    assert command("rebuild").exit_code == 0
    assert served_of(canary.engine) == served
    assert derived_of(canary.engine) == derived


_PLACES = [
    Place(when=when, table=table)
    for table, when in (
        ("verdicts", "BEFORE"),
        ("exposures", "AFTER"),
        ("sightings", "BEFORE"),
        ("cells", "BEFORE"),
        ("cells", "AFTER"),
        ("cursors", "BEFORE"),
        ("evidence", "AFTER"),
    )
]


@pytest.mark.process
@pytest.mark.parametrize("place", also_nightly(_PLACES[:1], _PLACES[1:]), ids=str)
def test_a_run_over_the_lake_that_is_killed_leaves_nothing_that_the_next_one_does_not_mend(
    canary, place, tmp_path
) -> None:
    shorten(canary)
    run_pipeline(canary.engine)
    seal(canary.engine)
    cells, served = derived_of(canary.engine)["cells"], served_of(canary.engine)
    assert moved(canary.engine) == 3
    with canary.engine.begin() as connection:
        claim_derived_tables(connection)
        empty_derived_tables(connection)

    with barrier(canary.url, place) as held:
        run = Command(words=("evaluate",), url=canary.url, log=tmp_path / "run.log")
        eventually(lambda: held.holds() or not run.running(), seconds=120)
        assert held.holds(), run.last_words()
        assert run.kill()
    with canary.engine.begin() as connection:
        assert scrub(connection, open_lake(), limit=1000) == []
    run_pipeline(canary.engine)

    assert derived_of(canary.engine)["cells"] == cells
    assert served_of(canary.engine) == served
    assert not list((tmp_path / "lake").glob("scratch/*"))


@pytest.mark.nightly
def test_a_day_and_a_range_of_days_are_checked_and_filled_from_the_lake(walked, instance) -> None:
    seal(walked.engine)
    served = served_of(walked.engine)
    moved(walked.engine)

    for job in ("deploy_reward_fast", "deploy_reward_day"):
        day = walked.first_day.date().isoformat()
        run = walked.run(job, instance, day)
        assert run.success
        assert not [check for check in run.get_asset_check_evaluations() if not check.passed]

    assert served_of(walked.engine) == served


@pytest.mark.nightly
def test_the_increment_finds_the_users_that_moved_days_named(canary) -> None:
    named = [
        RuntimeEvent(
            project_id=canary.project_id,
            environment="production",
            event="login",
            session_id=f"s{number}",
            occurred_at=canary.first_day - timedelta(hours=30, minutes=-number),
            pseudonym=bytes([number % 97]) * 16,
        )
        for number in range(0, 1200, 2)
    ]
    with canary.engine.begin() as connection:
        append_history(connection, named)
    seal(canary.engine)
    walk_to(canary.engine, canary.first_day + timedelta(days=2, hours=3))
    midway = Bookmark(canary.engine)
    walk_to(canary.engine, NOW)
    whole = derived_of(canary.engine)
    assert sum(str(row).count("\\\\x") for row in whole["exposures"]) > 1000
    midway.go_back()

    # Up to the day that was not read to its end.
    assert moved(canary.engine) == 4
    walk_to(canary.engine, NOW)

    assert derived_of(canary.engine) == whole


@pytest.mark.nightly
def test_who_is_forgotten_is_told_of_the_files_that_no_row_stands_behind(walked) -> None:
    seal(walked.engine)
    moved(walked.engine)

    with walked.engine.begin() as connection:
        listed = "SELECT count(*) FROM sealed_hours WHERE file IS NOT NULL"
        files = connection.execute(text(listed)).scalar_one()

    said = command("forget", "--project", "shop", "--session", "s3").output

    assert "exposures stay in counts without a name.\nFrom now on this person is left out" in said
    assert f"{files} files of the lake are read. Tonight's housekeeping writes those anew" in said
    assert command("audit", walked.experiments["click"]).exit_code == 0


@pytest.mark.nightly
def test_what_an_open_experiment_has_still_to_read_stays(canary) -> None:
    seal(canary.engine)

    assert moved(canary.engine) == 0

    run_pipeline(canary.engine)
    assert moved(canary.engine) == 3


def test_housekeeping_moves_days_and_says_which(walked, instance, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_HOT_DAYS", "1")
    seal(walked.engine)
    served = served_of(walked.engine)

    run = definitions.resolve_job_def("deploy_reward_housekeeping").execute_in_process(
        instance=instance
    )

    (output,) = [
        event.event_specific_data
        for event in run.all_events
        if event.is_successful_output and event.step_key == "move_old_days"
    ]
    metadata = {name: value.value for name, value in output.metadata.items()}
    assert metadata["hot_days"] == 1
    assert metadata["moved_days"] == 3
    assert metadata["days"][0] == walked.first_day.date().isoformat()
    assert metadata["freed_bytes"] > 0
    assert served_of(walked.engine) == served
