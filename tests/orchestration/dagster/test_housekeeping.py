"""Housekeeping: our own old records go from Dagster's storage, and nobody else's."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.definitions.selector import InstigatorSelector
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import TickData, TickStatus
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.runs.schema import RunsTable
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG
from dagster._utils.error import SerializableErrorInfo

from orchestration.dagster.upkeep.housekeeping import RetentionError, retention_days
from orchestration.dagster.upkeep.own_records import THINNED_TAG, OwnRecords
from orchestration.definitions import definitions
from storage.postgres.dagster_schema import create_dagster_schema, dagster_url

NOW = datetime.now(UTC)
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01")


def location(name: str) -> RemoteRepositoryOrigin:
    return RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(name), "__repository__")


def team(prefix: str) -> dg.Definitions:
    """A code location with a partitioned asset, a checked one, and a job of our fast job's name."""

    @dg.asset(key=[prefix, "cells"], partitions_def=DAYS)
    def cells() -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(tags={"kept": "tag"})

    @dg.asset(key=[prefix, "answers"], deps=[cells])
    def answers() -> None:
        """Nothing but its materialization."""

    @dg.asset_check(asset=answers)
    def holds() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    job = dg.define_asset_job("deploy_reward_fast", selection=dg.AssetSelection.all())
    return dg.Definitions(assets=[cells, answers], asset_checks=[holds], jobs=[job])


OURS, THEIRS = team("deploy_reward"), team("their")


_ERROR = SerializableErrorInfo(message="broken", stack=[], cls_name=None)


@dataclass(frozen=True, kw_only=True)
class House:
    """An instance that two code locations share, each with runs, ticks and check rows."""

    instance: dg.DagsterInstance

    @property
    def ours(self) -> OwnRecords:
        return OwnRecords(
            instance=self.instance,
            origin=location("deploy_reward"),
            jobs=["deploy_reward_fast"],
            schedules_and_sensors=["deploy_reward_fast"],
        )

    def ran(self, place: str, day: str, *, days_ago: float, **options: Any) -> str:
        """Runs a job of a code location, so long ago; returns the run."""
        job = (OURS if place == "deploy_reward" else THEIRS).resolve_job_def("deploy_reward_fast")
        run_id = job.execute_in_process(
            instance=self.instance,
            partition_key=day,
            tags={REPOSITORY_LABEL_TAG: location(place).get_label()},
        ).run_id
        self.age(run_id, days_ago=days_ago, **options)
        return run_id

    def age(self, run_id: str, *, days_ago: float, status: str = "SUCCESS") -> None:
        at = (NOW - timedelta(days=days_ago)).replace(tzinfo=None)
        with self.instance.run_storage.connect() as connection:
            mine = RunsTable.update().where(RunsTable.c.run_id == run_id)
            connection.execute(mine.values(create_timestamp=at, status=status))
        with self.instance.event_log_storage.index_connection() as connection:
            checks = AssetCheckExecutionsTable
            mine = checks.update().where(checks.c.run_id == run_id)
            connection.execute(mine.values(create_timestamp=at))
            events = SqlEventLogStorageTable
            mine = events.update().where(events.c.run_id == run_id)
            connection.execute(mine.values(timestamp=at))

    def ticked(self, place: str, status: TickStatus, *, days_ago: float) -> None:
        name, origin = "deploy_reward_fast", location(place)
        self.instance.create_tick(
            TickData(
                instigator_origin_id=origin.get_instigator_origin(name).get_id(),
                instigator_name=name,
                instigator_type=InstigatorType.SENSOR,
                status=status,
                timestamp=(NOW - timedelta(days=days_ago)).timestamp(),
                run_ids=[],
                skip_reason="nothing" if status is TickStatus.SKIPPED else None,
                error=_ERROR if status is TickStatus.FAILURE else None,
                selector_id=self._selector(place),
            )
        )

    def _selector(self, place: str) -> str:
        return InstigatorSelector(
            location_name=place, repository_name="__repository__", name="deploy_reward_fast"
        ).get_id()

    def ticks(self, place: str) -> list[str]:
        origin = location(place).get_instigator_origin("deploy_reward_fast").get_id()
        ticks = self.instance.get_ticks(origin, self._selector(place))
        return sorted(tick.status.value for tick in ticks)

    def runs(self, place: str) -> set[str]:
        label = {REPOSITORY_LABEL_TAG: location(place).get_label()}
        return set(self.instance.get_run_ids(dg.RunsFilter(tags=label)))

    def rows(self, table: sa.Table, prefix: str) -> int:
        """How many rows an asset's records have in a table of Dagster's."""
        count = sa.select(sa.func.count()).where(table.c.asset_key.like(f'["{prefix}"%'))
        with self.instance.event_log_storage.index_connection() as connection:
            return connection.execute(count).scalar_one()

    def recorded(self, place: str, prefix: str) -> tuple[Any, ...]:
        """All that the instance holds of a code location."""
        tables = (SqlEventLogStorageTable, AssetEventTagsTable, AssetCheckExecutionsTable)
        counts = [self.rows(table, prefix) for table in tables]
        return self.runs(place), self.ticks(place), counts, self.materialized(prefix)

    def materialized(self, prefix: str) -> set[str]:
        return set(self.instance.get_materialized_partitions(dg.AssetKey([prefix, "cells"])))


@pytest.fixture
def house() -> Iterator[House]:
    """In memory: Dagster's tables all the same."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield House(instance=instance)


# The job's own test does all of it on PostgreSQL too.
@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])
def stored_house(request: pytest.FixtureRequest) -> Iterator[House]:
    """On either of the storages that one meets."""
    overrides: dict[str, Any] = {}
    if request.param == "postgres":
        url = request.getfixturevalue("store").url
        create_dagster_schema(url)
        overrides["storage"] = {"postgres": {"postgres_url": dagster_url(url)}}
    with dg.instance_for_test(overrides=overrides) as instance:
        yield House(instance=instance)


def test_old_records_of_ours_go_and_a_guests_host_keeps_every_row(stored_house) -> None:
    for place in ("deploy_reward", "theirs"):
        for days_ago in (40, 35, 1.5):
            stored_house.ran(place, "2026-01-05", days_ago=days_ago)
        for days_ago in (40, 20, 1.5):
            for status in TickStatus:
                stored_house.ticked(place, status, days_ago=days_ago)
    theirs = stored_house.recorded("theirs", "their")

    pruned = stored_house.ours.prune_runs(as_of=NOW)
    stored_house.ours.prune_ticks(as_of=NOW)
    checks = stored_house.ours.prune_checks(as_of=NOW)
    stored_house.ours.prune_runless_events(as_of=NOW)

    assert (pruned.deleted, checks) == (2, 4)
    assert len(stored_house.runs("deploy_reward")) == 1
    assert stored_house.rows(AssetCheckExecutionsTable, "deploy_reward") == 2
    assert stored_house.ticks("deploy_reward") == ["FAILURE", "FAILURE", "STARTED", "SUCCESS"]
    assert stored_house.recorded("theirs", "their") == theirs


def test_a_day_that_was_materialized_once_stays_materialized_for_half_a_year(house) -> None:
    only = house.ran("deploy_reward", "2026-01-05", days_ago=179)
    again = [house.ran("deploy_reward", "2026-01-06", days_ago=days) for days in (179, 178)]
    house.ran("deploy_reward", "2026-01-07", days_ago=1)
    events = house.rows(SqlEventLogStorageTable, "deploy_reward")

    first = house.ours.prune_runs(as_of=NOW)
    second = house.ours.prune_runs(as_of=NOW)

    assert (first.deleted, first.thinned) == (1, 2)
    assert (second.deleted, second.thinned) == (0, 0)
    assert house.materialized("deploy_reward") == {"2026-01-05", "2026-01-06", "2026-01-07"}
    assert {only, again[1]} < house.runs("deploy_reward")
    assert again[0] not in house.runs("deploy_reward")
    assert house.rows(SqlEventLogStorageTable, "deploy_reward") < events
    assert house.instance.get_run_by_id(only).tags[THINNED_TAG] == "true"

    later = house.ours.prune_runs(as_of=NOW + timedelta(days=3))
    assert later.deleted == 2
    assert house.materialized("deploy_reward") == {"2026-01-07"}


def test_runs_in_progress_failed_of_late_and_the_newest_stay(house) -> None:
    stuck = house.ran("deploy_reward", "2026-01-05", days_ago=99, status="STARTED")
    failed = house.ran("deploy_reward", "2026-01-05", days_ago=29, status="FAILURE")
    long_failed = house.ran("deploy_reward", "2026-01-05", days_ago=31, status="FAILURE")
    newest = house.ran("deploy_reward", "2026-01-05", days_ago=20)

    house.ours.prune_runs(as_of=NOW)

    assert house.runs("deploy_reward") == {stuck, failed, newest}
    assert not house.instance.all_logs(long_failed)


def test_a_round_prunes_the_oldest_and_no_more_than_it_may(house) -> None:
    runs = [house.ran("deploy_reward", "2026-01-05", days_ago=days) for days in (50, 49, 48, 1)]

    house.ours.prune_runs(as_of=NOW, limit=2)

    assert house.runs("deploy_reward") == set(runs[2:])


def test_what_a_person_materialized_of_ours_goes_and_of_a_merged_neighbours_stays(house) -> None:
    def by_hand(team: dg.Definitions, *keys: dg.AssetKey) -> str:
        run = house.instance.create_run_for_job(
            team.resolve_job_def("__ASSET_JOB"),
            remote_job_origin=location("deploy_reward").get_job_origin("__ASSET_JOB"),
            asset_selection=frozenset(keys) or None,
        )
        house.age(run.run_id, days_ago=40)
        return run.run_id

    by_hand(OURS, dg.AssetKey(["deploy_reward", "answers"]))
    stays = {by_hand(OURS), by_hand(THEIRS, dg.AssetKey(["their", "answers"]))}

    house.ours.prune_runs(as_of=NOW)

    assert house.runs("deploy_reward") == stays


def test_old_events_of_no_run_go_but_for_the_newest_of_each_asset(house) -> None:
    for prefix in ("deploy_reward", "their"):
        for _ in range(3):
            house.instance.report_runless_asset_event(dg.AssetMaterialization([prefix, "answers"]))

    gone = house.ours.prune_runless_events(as_of=NOW + timedelta(days=31))

    assert gone == 2
    assert house.rows(SqlEventLogStorageTable, "deploy_reward") == 1
    assert house.rows(SqlEventLogStorageTable, "their") == 3


# --- The job -------------------------------------------------------------------------------------


def executed(instance: dg.DagsterInstance, *, origin: bool) -> dict[str, dict[str, Any]]:
    """Runs the job as a run launcher does; returns what each step said."""
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


@pytest.mark.parametrize("stored_house", ["postgres"], indirect=True)
def test_the_job_does_all_of_it_and_says_what(stored_house, store, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    gone = stored_house.ran("deploy_reward", "2026-01-05", days_ago=40)
    stored_house.ran("deploy_reward", "2026-01-05", days_ago=1)

    told = executed(stored_house.instance, origin=True)

    assert gone not in stored_house.runs("deploy_reward")
    assert told["drop_old_days"]["retention_days"] == 90
    assert told["delete_expired_units"]["rows"] == 0
    assert told["delete_old_deliveries"]["rows"] == 0
    assert told["prune_runs"] == {"deleted": 1, "thinned": 0, "runless_events": 0}
    assert told["prune_checks"]["rows"] == 2
    assert "deploy_reward_housekeeping" in told["prune_ticks"]["pruned"]


def test_a_run_of_no_code_location_touches_no_instance(house, store, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    old = house.ran("deploy_reward", "2026-01-05", days_ago=40)
    house.ran("deploy_reward", "2026-01-05", days_ago=1)

    executed(house.instance, origin=False)

    assert old in house.runs("deploy_reward")


@pytest.mark.parametrize(("said", "days"), [(None, 90), ("", 90), ("60", 60), (" 400 ", 400)])
def test_the_retention_is_ninety_days_unless_the_environment_says_otherwise(
    monkeypatch, said, days
) -> None:
    if said is not None:
        monkeypatch.setenv("SERVICE_RETENTION_DAYS", said)

    assert retention_days() == days


@pytest.mark.parametrize("said", ["59", "0", "-90", "ninety", "90.0", "9e1"])
def test_a_retention_that_open_experiments_cannot_live_with_is_refused(monkeypatch, said) -> None:
    monkeypatch.setenv("SERVICE_RETENTION_DAYS", said)

    with pytest.raises(RetentionError, match="at least 60"):
        retention_days()
