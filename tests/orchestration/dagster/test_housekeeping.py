"""Housekeeping: our jobs' old runs go from Dagster's storage, and nothing of anybody else's."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from orchestration.dagster.upkeep.housekeeping import RetentionError, hot_days, retention_days
from orchestration.dagster.upkeep.own_runs import OwnRuns
from orchestration.definitions import definitions
from storage.postgres.dagster_schema import create_dagster_schema, dagster_url

NOW = datetime.now(UTC)
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01")
JOB = "deploy_reward_fast"


@dg.asset(key=["deploy_reward", "cells"], partitions_def=DAYS)
def cells() -> None:
    """Nothing but its materialization."""


@dg.asset_check(asset=cells)
def holds() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


TEAM = dg.Definitions(
    assets=[cells],
    asset_checks=[holds],
    jobs=[dg.define_asset_job(JOB, selection=dg.AssetSelection.all())],
)


def location(name: str) -> RemoteRepositoryOrigin:
    return RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(name), "__repository__")


@dataclass(frozen=True, kw_only=True)
class House:
    """An instance that code locations with a job of the same name share."""

    instance: dg.DagsterInstance

    def run(
        self, day: str, *, days_ago: float, status: str = "SUCCESS", place: str = "deploy_reward"
    ) -> str:
        """Records a run of a code location's job, made so long ago, and returns its id."""
        job = TEAM.resolve_job_def(JOB)
        run_id = job.execute_in_process(instance=self.instance, partition_key=day).run_id
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        self.instance.run_storage.delete_run(run_id)
        origin = location(place).get_job_origin(JOB)
        self.instance.add_run(
            run._replace(remote_job_origin=origin, status=dg.DagsterRunStatus(status))
        )
        at = (NOW - timedelta(days=days_ago)).replace(tzinfo=None)
        with self.instance.run_storage.connect() as connection:
            aged = sa.text("UPDATE runs SET create_timestamp = :at WHERE run_id = :id")
            connection.execute(
                aged.bindparams(sa.bindparam("at", type_=sa.DateTime)), {"at": at, "id": run_id}
            )
        return run_id

    def runs(self) -> set[str]:
        return set(self.instance.get_run_ids())

    def delete_old(self, *, as_of: datetime = NOW, **options: Any) -> int:
        ours = OwnRuns(instance=self.instance, origin=location("deploy_reward"), jobs=[JOB])
        return ours.delete(as_of=as_of, **options)

    def materialized(self) -> set[str]:
        return set(self.instance.get_materialized_partitions(cells.key))


# The job's own test does all of it on PostgreSQL too.
@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])
def house(request) -> Iterator[House]:
    """On either of Dagster's storages."""
    overrides: dict[str, Any] = {}
    if request.param == "postgres":
        url = request.getfixturevalue("store").url
        create_dagster_schema(url)
        overrides["storage"] = {"postgres": {"postgres_url": dagster_url(url)}}
    with dg.instance_for_test(overrides=overrides) as instance:
        yield House(instance=instance)


def test_our_old_runs_go_with_their_events_and_a_guests_host_keeps_every_run(house) -> None:
    old = [house.run("2026-01-05", days_ago=days) for days in (40, 35)]
    theirs = [house.run("2026-01-05", days_ago=days, place="their") for days in (40, 35)]
    young = house.run("2026-01-06", days_ago=1.5)
    started_by_hand = TEAM.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=house.instance, partition_key="2026-01-05"
    )

    assert house.delete_old() == 1

    assert house.runs() == {old[1], young, *theirs, started_by_hand.run_id}
    assert not house.instance.all_logs(old[0])
    assert house.instance.all_logs(theirs[0])


def test_a_day_that_was_materialized_once_stays_materialized_for_half_a_year(house) -> None:
    only = house.run("2026-01-05", days_ago=179)
    again = [house.run("2026-01-06", days_ago=days) for days in (179, 178)]
    newest = house.run("2026-01-07", days_ago=1)

    assert (house.delete_old(), house.delete_old()) == (1, 0)
    assert house.runs() == {only, again[1], newest}
    assert house.materialized() == {"2026-01-05", "2026-01-06", "2026-01-07"}

    assert house.delete_old(as_of=NOW + timedelta(days=3)) == 2
    assert house.materialized() == {"2026-01-07"}


@pytest.mark.nightly
def test_runs_in_progress_and_failed_of_late_stay(house) -> None:
    stuck = house.run("2026-01-05", days_ago=99, status="STARTED")
    failed = house.run("2026-01-05", days_ago=29, status="FAILURE")
    house.run("2026-01-05", days_ago=31, status="FAILURE")

    house.delete_old()

    assert house.runs() == {stuck, failed}


@pytest.mark.nightly
def test_a_round_deletes_the_oldest_and_no_more_than_it_may(house) -> None:
    runs = [house.run("2026-01-05", days_ago=days) for days in (50, 49, 48, 20)]

    house.delete_old(limit=2)

    assert house.runs() == set(runs[2:])


# --- The job -------------------------------------------------------------------------------------


def executed(instance: dg.DagsterInstance, *, origin: bool) -> dict[str, dict[str, Any]]:
    """Runs the job as a run launcher does, and returns the metadata of each step."""
    repository = ReconstructableRepository.for_module("orchestration.definitions", "definitions")
    job = repository.get_reconstructable_job("deploy_reward_housekeeping")
    ours = location("deploy_reward").get_job_origin("deploy_reward_housekeeping")
    run = instance.create_run_for_job(
        definitions.resolve_job_def("deploy_reward_housekeeping"),
        remote_job_origin=ours if origin else None,
    )
    events = execute_run(job, run, instance, raise_on_error=True)
    return {
        event.step_key: {
            name: value.value for name, value in event.step_output_data.metadata.items()
        }
        for event in events.all_events
        if event.is_successful_output
    }


@pytest.mark.parametrize("house", ["postgres"], indirect=True)
@pytest.mark.nightly
def test_the_job_does_all_of_it_and_reports_it(house, store, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    gone = house.run("2026-01-05", days_ago=40)
    house.run("2026-01-05", days_ago=20)

    executed(house.instance, origin=False)
    assert gone in house.runs()

    metadata = executed(house.instance, origin=True)

    assert gone not in house.runs()
    assert metadata["drop_old_days"]["retention_days"] == 90
    assert metadata["delete_expired_units"]["rows"] == 0
    assert metadata["delete_old_deliveries"]["rows"] == 0
    assert metadata["delete_old_names"]["rows"] == 0
    assert metadata["delete_old_runs"] == {"deleted": 1}


@pytest.mark.parametrize(
    ("variable", "days", "default", "least"),
    [("SERVICE_RETENTION_DAYS", retention_days, 90, 60), ("SERVICE_HOT_DAYS", hot_days, 7, 1)],
)
def test_the_days_that_are_kept_are_whole_and_enough(
    monkeypatch, variable, days, default, least
) -> None:
    assert days() == default
    for said, kept in (("", default), (str(least), least), (" 400 ", 400)):
        monkeypatch.setenv(variable, said)
        assert days() == kept
    for said in (str(least - 1), "-90", "ninety", "90.0", "9e1"):
        monkeypatch.setenv(variable, said)
        with pytest.raises(RetentionError, match=f"{variable} is .* at least {least}"):
            days()
