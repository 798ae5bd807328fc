"""The schedule: the walk of each hour, whole and checked, and the rebuild of settled days."""

from collections.abc import Iterator
from datetime import date, timedelta

import dagster as dg

from orchestration.assets import STEPS
from orchestration.jobs import OTHERS, REBUILT, day
from orchestration.keys import PREFIX, SEALED_LOG, SESSION_CELLS
from orchestration.partitions import DAYS, key_of
from orchestration.resources import Store
from orchestration.sources import SOURCES
from storage.backlog import settled_days
from storage.clock import closed_instant

# Carried by the run that rebuilt a day: once a day's last metric has closed, once is enough.
REBUILT_TAG = f"{PREFIX}/rebuilt"
_DONE_OR_TO_COME = [
    status
    for status in dg.DagsterRunStatus
    if status not in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
]


@dg.schedule(
    name=f"{PREFIX}_day",
    job=day,
    cron_schedule="7 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each hour; and, once per day of exposure, the rebuild of a day that has settled.",
)
def each_hour(context: dg.ScheduleEvaluationContext, store: Store) -> Iterator[dg.RunRequest]:
    """Requests the walk for yesterday, and for one settled day its rebuild."""
    at = context.scheduled_execution_time
    yield dg.RunRequest(
        run_key=at.isoformat(),
        partition_key=key_of(at - timedelta(days=1)),
        asset_selection=[
            *(spec.key for spec in SOURCES),
            SEALED_LOG,
            *(step.key for step in STEPS),
        ],
        asset_check_keys=OTHERS,
    )
    with store.reading() as connection:
        settled = settled_days(connection, as_of=closed_instant(connection))
    # One an hour: after an import of weeks the machine is not held up by all of them at once.
    for key in _not_rebuilt(context.instance, settled)[:1]:
        yield dg.RunRequest(
            run_key=f"{at.isoformat()}/{key}",
            partition_key=key,
            asset_selection=[SESSION_CELLS],
            asset_check_keys=[REBUILT],
            tags={REBUILT_TAG: key},
        )


def _not_rebuilt(instance: dg.DagsterInstance, days: list[date]) -> list[str]:
    keys = [one.isoformat() for one in days if DAYS.has_partition_key(one.isoformat())]
    return [
        key
        for key in keys
        if not instance.get_runs_count(
            dg.RunsFilter(job_name=day.name, tags={REBUILT_TAG: key}, statuses=_DONE_OR_TO_COME)
        )
    ]


SCHEDULES = (each_hour,)
