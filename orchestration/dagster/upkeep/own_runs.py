"""Own runs: deletes the old runs of our jobs from Dagster's storage, by Dagster's public calls."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import dagster as dg

from orchestration.dagster.partitions import PARTITION_TAG

SUCCEEDED_DAYS = 14
FAILED_DAYS = 30
# A day that was materialized once shows as such for so long, by the run that did it last.
PARTITION_DAYS = 180


@dataclass(frozen=True, kw_only=True)
class OwnRuns:
    """The runs of a code location's jobs, in an instance that others may share.

    A run that a person started is that person's to delete.
    """

    instance: dg.DagsterInstance
    origin: Any
    jobs: Sequence[str]

    def delete(self, *, as_of: datetime, limit: int = 5_000) -> int:
        """Deletes the oldest runs that have served their time, with all their events."""
        ids = [run_id for job in self.jobs for run_id in self._expired(job, as_of)]
        for run_id in ids[:limit]:
            self.instance.delete_run(run_id)
        return len(ids[:limit])

    def _expired(self, job: str, as_of: datetime) -> list[str]:
        """Returns a job's runs to delete, the oldest first.

        Deleting a run deletes its materializations, after which the UI calls the asset or the day
        missing. So of each day and selection of assets the last run that succeeded stays longer.
        """
        succeeded = self._ended(job, as_of, SUCCEEDED_DAYS, dg.DagsterRunStatus.SUCCESS)
        half_a_year_ago = as_of - timedelta(days=PARTITION_DAYS)
        shown = _newest_of_each_day(
            self._ended(
                job, as_of, SUCCEEDED_DAYS, dg.DagsterRunStatus.SUCCESS, since=half_a_year_ago
            )
        )
        failed = self._ended(
            job, as_of, FAILED_DAYS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED
        )
        expired = [*succeeded, *failed][::-1]
        return [run.run_id for run in expired if run.run_id not in shown]

    def _ended(
        self,
        job: str,
        as_of: datetime,
        days: int,
        *statuses: dg.DagsterRunStatus,
        since: datetime | None = None,
    ) -> list[dg.DagsterRun]:
        """Returns the job's runs that ended so and are older than so many days, newest first."""
        old = dg.RunsFilter(
            job_name=job,
            statuses=statuses,
            created_before=as_of - timedelta(days=days),
            created_after=since,
        )
        return [run for run in self.instance.get_runs(old) if self._is_own(run)]

    def _is_own(self, run: dg.DagsterRun) -> bool:
        job = run.remote_job_origin
        return job is not None and job.repository_origin == self.origin


def _newest_of_each_day(runs: Iterable[dg.DagsterRun]) -> set[str]:
    """Returns, of runs with the newest first, the first of each day and selection of assets."""
    newest: dict[object, str] = {}
    for run in runs:
        newest.setdefault((run.tags.get(PARTITION_TAG), run.asset_selection), run.run_id)
    return set(newest.values())
