"""The sensor that fails runs whose process is gone, which Dagster shows as started for hours."""

import json

import dagster as dg

from orchestration.dagster.keys import PREFIX, STORE_TAG
from orchestration.dagster.resources import Store

_SAID = "Its process is gone: nobody holds the lock of the run any more."
# Under way, for Dagster.
_STATUSES = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


@dg.sensor(
    name=f"{PREFIX}_dead_runs",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Each half minute: fails the runs of ours whose process is gone, so that they hold"
    " no place in the queue. Launches no run.",
)
def dead_runs(context: dg.SensorEvaluationContext, store: Store) -> dg.SensorResult:
    """Fails each run whose lock was free in two ticks: one that lost its connection holds it again.

    Of a run of another store nothing is known here.
    """
    from storage.postgres.run_lock import free_runs, place_of

    ours = dg.RunsFilter(statuses=_STATUSES, tags={STORE_TAG: place_of(store.engine)})
    runs = {run.run_id: run for run in context.instance.get_runs(ours)}
    free: set[str] = set()
    if runs:
        with store.reading() as connection:
            free = free_runs(connection, runs.keys())
    dead = free.intersection(json.loads(context.cursor or "[]"))
    for run_id in sorted(dead):
        context.instance.report_run_failed(runs[run_id], _SAID)
    said = f"failed {', '.join(sorted(dead))}" if dead else "no run is dead"
    return dg.SensorResult(skip_reason=said, cursor=json.dumps(sorted(free - dead)))
