"""Our own records in Dagster's storage: runs, ticks, check rows and events, and which are kept."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg
import sqlalchemy as sa

from orchestration.dagster.keys import PREFIX
from orchestration.dagster.upkeep.private_dagster import (
    IMPLICIT_ASSET_JOB_NAME,
    REPOSITORY_LABEL_TAG,
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    InstigatorSelector,
    RemoteRepositoryOrigin,
    SqlEventLogStorage,
    SqlEventLogStorageTable,
    TickStatus,
)

# Of a run of which only the newest materialization of some day or asset is left.
THINNED_TAG = f"{PREFIX}/thinned"

SUCCEEDED_DAYS = 14
FAILED_DAYS = 30
# For so long a day that was materialized once shows as such, by a row or two that its run leaves.
PARTITION_DAYS = 180
# A schedule that ticks each minute skips 1,440 times a day, a sensor each half minute 2,880.
TICK_DAYS = {
    TickStatus.SKIPPED: 1,
    TickStatus.STARTED: 7,
    TickStatus.SUCCESS: 7,
    TickStatus.FAILURE: 30,
}
_ENDED = (
    ((dg.DagsterRunStatus.SUCCESS,), SUCCEEDED_DAYS),
    ((dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED), FAILED_DAYS),
)
_SHOWN_FOR_AN_ASSET = (
    dg.DagsterEventType.ASSET_MATERIALIZATION.value,
    dg.DagsterEventType.ASSET_OBSERVATION.value,
    "FRESHNESS_STATE_CHANGE",
)


@dataclass(frozen=True, kw_only=True)
class OwnRecords:
    """The records of one code location in an instance that others may share.

    Attributes:
        instance: Dagster's.
        origin: The code location, as its runs carry it.
        jobs: Its jobs' names.
        schedules_and_sensors: Their names.
    """

    instance: dg.DagsterInstance
    origin: RemoteRepositoryOrigin
    jobs: Sequence[str]
    schedules_and_sensors: Sequence[str]

    # --- Runs -------------------------------------------------------------------------------------

    def prune_runs(self, *, as_of: datetime, limit: int = 5_000) -> "RunPruning":
        """Deletes ended runs that are old, with all their events; some stay, thinned.

        Of each asset, and of its days of the last half year, the newest materialization stays, or
        the UI would call it missing; of the run that made it nothing else does. The newest run of
        each job stays whole.

        Args:
            as_of: Now.
            limit: How many runs in this round.
        """
        old = [run for statuses, days in _ENDED for run in self._ended(statuses, days, as_of)]
        newest = {
            run
            for job in self.jobs
            for run in self.instance.get_run_ids(self._filter(job_name=job), limit=1)
        }
        thinned = set(self.instance.get_run_ids(self._filter(tags={THINNED_TAG: "true"})))
        kept = self._newest_events(as_of)
        deleted = thin = 0
        for run_id in [run for run in old if run not in newest | (thinned & kept.keys())][:limit]:
            if events := kept.get(run_id):
                self._thin(run_id, events)
                thin += 1
            else:
                # The events first: a run whose deletion breaks off is found again.
                self.instance.event_log_storage.delete_events(run_id)
                self.instance.delete_run(run_id)
                deleted += 1
        return RunPruning(deleted=deleted, thinned=thin)

    def _ended(
        self, statuses: Sequence[dg.DagsterRunStatus], days: int, as_of: datetime
    ) -> list[str]:
        """Returns the runs that ended so and are older than so many days, the oldest first."""
        before = as_of - timedelta(days=days)

        def old(job_name: str) -> dg.RunsFilter:
            return self._filter(job_name=job_name, statuses=statuses, created_before=before)

        of_jobs = [run for job in self.jobs for run in self.instance.get_run_ids(old(job))]
        # What a person materializes: where our definitions were merged with others', of either's.
        by_hand = self.instance.get_runs(old(IMPLICIT_ASSET_JOB_NAME))
        return [*of_jobs[::-1], *(run.run_id for run in by_hand[::-1] if _is_of_ours(run))]

    def _filter(
        self,
        *,
        job_name: str | None = None,
        statuses: Sequence[dg.DagsterRunStatus] | None = None,
        tags: Mapping[str, str] | None = None,
        created_before: datetime | None = None,
    ) -> dg.RunsFilter:
        """Returns a filter for runs of this code location alone."""
        return dg.RunsFilter(
            job_name=job_name,
            statuses=statuses,
            tags={**(tags or {}), REPOSITORY_LABEL_TAG: self.origin.get_label()},
            created_before=created_before,
        )

    def _newest_events(self, as_of: datetime) -> dict[str, list[int]]:
        """Returns, by run, the events that stay: the newest of each kind, asset and partition."""
        storage, keys = self._sql_storage(), self._asset_keys()
        if storage is None or not keys:
            return {}
        events = SqlEventLogStorageTable.c
        with storage.index_connection() as connection:
            rows = connection.execute(
                sa.select(events.run_id, events.id).where(events.id.in_(_newest_ids(keys, as_of)))
            ).all()
        kept: dict[str, list[int]] = {}
        for run_id, event_id in rows:
            kept.setdefault(run_id, []).append(event_id)
        return kept

    def _thin(self, run_id: str, kept: Sequence[int]) -> None:
        storage = self._sql_storage()
        assert storage is not None  # noqa: S101 - only an SQL storage tells what to keep
        events = SqlEventLogStorageTable.c
        gone = sa.and_(events.run_id == run_id, events.id.not_in(kept))
        with storage.index_connection() as connection:
            _delete_events(connection, gone)
        self.instance.add_run_tags(run_id, {THINNED_TAG: "true"})

    # --- Events of no run -------------------------------------------------------------------------

    def prune_runless_events(self, *, as_of: datetime) -> int | None:
        """Deletes old events that our assets got without a run, and returns how many.

        Such as changes of freshness, and events reported from outside. None where the storage is
        no SQL database.
        """
        storage, keys = self._sql_storage(), self._asset_keys()
        if storage is None:
            return None
        if not keys:
            return 0
        events = SqlEventLogStorageTable.c
        gone = sa.and_(
            events.run_id == "",
            events.asset_key.in_(keys),
            events.timestamp < _naive(as_of - timedelta(days=FAILED_DAYS)),
            events.id.not_in(_newest_ids(keys, as_of)),
        )
        with storage.index_connection() as connection:
            return _delete_events(connection, gone)

    # --- Ticks ------------------------------------------------------------------------------------

    def prune_ticks(self, *, as_of: datetime) -> None:
        """Deletes the old ticks of our schedules and sensors, skipped ones after a day."""
        for name in self.schedules_and_sensors:
            origin = self.origin.get_instigator_origin(name)
            selector = InstigatorSelector(
                location_name=self.origin.code_location_origin.location_name,
                repository_name=self.origin.repository_name,
                name=name,
            )
            for status, days in TICK_DAYS.items():
                self.instance.purge_ticks(
                    origin.get_id(),
                    selector.get_id(),
                    (as_of - timedelta(days=days)).timestamp(),
                    [status],
                )

    # --- Checks -----------------------------------------------------------------------------------

    def prune_checks(self, *, as_of: datetime) -> int | None:
        """Deletes old rows of our asset checks, and returns how many.

        The newest of each check and partition stays. Dagster itself deletes none, not even with
        their runs. None where the storage is no SQL database.
        """
        storage = self._sql_storage()
        if storage is None:
            return None
        checks = AssetCheckExecutionsTable.c
        # As Dagster writes a key: a JSON list.
        ours = checks.asset_key.startswith(f'["{PREFIX}", ', autoescape=True)
        newest = (
            sa.select(sa.func.max(checks.id))
            # Of an unpartitioned check in a run of a day Dagster leaves a planned row for the day.
            .where(ours, checks.execution_status != "PLANNED")
            .group_by(checks.asset_key, checks.check_name, checks.partition)
        )
        gone = sa.and_(
            ours,
            checks.create_timestamp < _naive(as_of - timedelta(days=FAILED_DAYS)),
            checks.id.not_in(newest),
        )
        with storage.index_connection() as connection:
            return connection.execute(AssetCheckExecutionsTable.delete().where(gone)).rowcount

    def _sql_storage(self) -> SqlEventLogStorage | None:
        storage = self.instance.event_log_storage
        return storage if isinstance(storage, SqlEventLogStorage) else None

    def _asset_keys(self) -> list[str]:
        return [key.to_string() for key in self.instance.get_asset_keys(prefix=[PREFIX])]


def _is_of_ours(run: dg.DagsterRun) -> bool:
    keys = [*(run.asset_selection or ()), *(check.asset_key for check in _checks(run))]
    return bool(keys) and all(key.path[0] == PREFIX for key in keys)


def _checks(run: dg.DagsterRun) -> Iterable[dg.AssetCheckKey]:
    return run.asset_check_selection or ()


@dataclass(frozen=True, kw_only=True)
class RunPruning:
    """How many runs were deleted, and of how many only a materialization was left."""

    deleted: int
    thinned: int


def _newest_ids(keys: Iterable[str], as_of: datetime) -> sa.Select[tuple[int]]:
    events = SqlEventLogStorageTable.c
    return (
        sa.select(sa.func.max(events.id))
        .where(
            events.asset_key.in_(keys),
            events.dagster_event_type.in_(_SHOWN_FOR_AN_ASSET),
            # A row a day for ever would else be what grows, if slowly.
            events.partition.is_(None)
            | (events.timestamp >= _naive(as_of - timedelta(days=PARTITION_DAYS))),
        )
        .group_by(events.asset_key, events.dagster_event_type, events.partition)
    )


def _delete_events(connection: sa.Connection, gone: sa.ColumnElement[bool]) -> int:
    ids = sa.select(SqlEventLogStorageTable.c.id).where(gone)
    tags = AssetEventTagsTable.delete().where(AssetEventTagsTable.c.event_id.in_(ids))
    connection.execute(tags)
    return connection.execute(SqlEventLogStorageTable.delete().where(gone)).rowcount


def _naive(moment: datetime) -> datetime:
    """Returns a moment as Dagster's tables hold it: in UTC, without saying so."""
    return moment.astimezone(UTC).replace(tzinfo=None)
