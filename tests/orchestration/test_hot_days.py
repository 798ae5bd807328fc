"""Hot days: verdicts are the same to the byte, whatever part of the log is in the lake alone."""

import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, text

from cli.main import main
from cli.operations.audit import Exit
from domain.registration import Registration
from orchestration.definitions import definitions
from storage.experiments.experiments import register
from storage.lake.comparison import compare_files
from storage.lake.hot_days import move_old_days
from storage.lake.lake import open_lake
from storage.lake.scrubbing import scrub
from storage.lake.sealing import Sealer
from storage.log.events import RuntimeEvent, append_history
from storage.postgres.engine import open_engine
from storage.schema.clock import claim_derived_tables
from tests.processes.api_process import eventually
from tests.processes.command import Command
from tests.repetition import also_nightly
from tests.stores.backup import dump, empty_database, restore
from tests.stores.barrier import Place, barrier
from tests.stores.derived import derived_of
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


def verdicts(engine: Engine) -> Any:
    query = "SELECT experiment_id, contract::text, evidence::text FROM verdicts ORDER BY 1"
    with engine.begin() as connection:
        return connection.execute(text(query)).all()


def events_stored(engine: Engine) -> int:
    with engine.begin() as connection:
        return connection.execute(text("SELECT count(*) FROM runtime_events")).scalar_one()


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
    derived, served = derived_of(canary.engine), verdicts(canary.engine)
    assert moved(canary.engine) == 3
    with canary.engine.begin() as connection:
        claim_derived_tables(connection)
        empty_derived_tables(connection)

    run_pipeline(canary.engine)

    assert verdicts(canary.engine) == served
    # An experiment that is over when it is first read is stored as counts: a rebuild stores all.
    assert command("rebuild").exit_code == 0
    assert verdicts(canary.engine) == served
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
    cells, served = derived_of(canary.engine)["cells"], verdicts(canary.engine)
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
    assert verdicts(canary.engine) == served
    assert not list((tmp_path / "lake").glob("scratch/*"))


@pytest.mark.nightly
def test_a_store_of_moved_days_is_restored_and_tells_the_same(
    canary, monkeypatch, tmp_path
) -> None:
    shorten(canary)
    run_pipeline(canary.engine)
    seal(canary.engine)
    served, derived = verdicts(canary.engine), derived_of(canary.engine)
    assert moved(canary.engine) == 3
    kept = events_stored(canary.engine)
    # First the database, then the lake, as docs/operations/keeping.md says.
    dump(canary.engine, tmp_path / "dump")
    lake = shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    shutil.rmtree(tmp_path / "lake")

    with empty_database(canary.engine) as url:
        restore(url, tmp_path / "dump")
        monkeypatch.setenv("SERVICE_DATABASE_URL", url)
        monkeypatch.setenv("SERVICE_LAKE", str(lake))
        engine = open_engine(url)
        assert events_stored(engine) == kept
        assert verdicts(engine) == served
        assert derived_of(engine) == derived
        with engine.begin() as connection:
            assert compare_files(connection, open_lake()).different == []
            assert scrub(connection, open_lake()) == []
            claim_derived_tables(connection)
            empty_derived_tables(connection)
        # Nothing derived is left: all of it comes from the lake's copy.
        assert command("rebuild").exit_code == 0
        assert derived_of(engine) == derived
        assert verdicts(engine) == served
        for experiment in canary.experiments.values():
            assert "equal to the byte" in command("audit", experiment).stdout
        engine.dispose()


def test_a_restored_store_names_the_files_of_moved_days_that_its_lake_lacks(
    walked, monkeypatch, tmp_path
) -> None:
    seal(walked.engine)
    assert moved(walked.engine) == 3
    dump(walked.engine, tmp_path / "dump")
    monkeypatch.setenv("SERVICE_LAKE", str(tmp_path / "forgotten"))

    with empty_database(walked.engine) as url:
        restore(url, tmp_path / "dump")
        monkeypatch.setenv("SERVICE_DATABASE_URL", url)
        engine = open_engine(url)
        with engine.begin() as connection:
            missing = {file.name for file in scrub(connection, open_lake())}
        engine.dispose()
        result = command("audit", walked.experiments["click"])
        assert result.exit_code == Exit.NOT_COMPUTED
        assert any(name in result.stderr for name in missing)


def test_a_day_and_a_range_of_days_are_checked_and_filled_from_the_lake(walked, instance) -> None:
    seal(walked.engine)
    served = verdicts(walked.engine)
    moved(walked.engine)

    for job in ("deploy_reward_fast", "deploy_reward_day"):
        day = walked.first_day.date().isoformat()
        run = walked.run(job, instance, day)
        assert run.success
        assert not [check for check in run.get_asset_check_evaluations() if not check.passed]

    assert verdicts(walked.engine) == served


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


def test_an_experiment_that_is_bound_afterwards_counts_the_units_of_one_before(walked) -> None:
    seal(walked.engine)
    assert moved(walked.engine) == 3
    with walked.engine.begin() as connection:
        later = register(
            connection,
            walked.project_id,
            Registration(treatment_commit="decade1", target_metric="login"),
        ).experiment_id

    run_pipeline(walked.engine)

    def units(experiment_id: str) -> Any:
        query = text(
            "SELECT block, treatment, control, in_flight FROM block_units_in_words"
            " WHERE experiment_id = :id ORDER BY block"
        )
        with walked.engine.begin() as connection:
            return connection.execute(query, {"id": experiment_id}).all()

    assert sum(row.treatment for row in units(later)) == 600
    assert units(later) == units(walked.experiments["click"])


def test_who_is_forgotten_is_told_of_the_files_that_no_row_stands_behind(walked) -> None:
    seal(walked.engine)
    moved(walked.engine)

    with walked.engine.begin() as connection:
        listed = "SELECT count(*) FROM sealed_hours WHERE file IS NOT NULL"
        files = connection.execute(text(listed)).scalar_one()

    said = command("forget", "--project", "shop", "--session", "s3").output

    assert "exposures stay in counts without a name.\nFrom now on this person is left out" in said
    assert f"{files} files of the lake are read. Tonight's housekeeping writes those anew" in said
    assert all(command("audit", name).exit_code == 0 for name in walked.experiments.values())


def test_what_an_open_experiment_has_still_to_read_stays(canary) -> None:
    seal(canary.engine)

    assert moved(canary.engine) == 0

    run_pipeline(canary.engine)
    assert moved(canary.engine) == 3


def test_housekeeping_moves_days_and_says_which(walked, instance, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_HOT_DAYS", "1")
    seal(walked.engine)
    served = verdicts(walked.engine)

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
    assert verdicts(walked.engine) == served
