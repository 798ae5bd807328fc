"""Failures: the runs and the checks of ours that went wrong, as Dagster's records tell them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from orchestration.dagster.keys import PREFIX
from orchestration.outbound.redaction import redacted

# A tick looks at so many ended runs of a kind, and the next tick at those after them.
MOST = 20
_ENDS = (
    dg.DagsterEventType.RUN_FAILURE,
    dg.DagsterEventType.RUN_SUCCESS,
    dg.DagsterEventType.RUN_CANCELED,
)
# Dagster sets this tag where it tries the run again: the end of the last attempt matters.
_WILL_RETRY = "dagster/will_retry"


@dataclass(frozen=True, kw_only=True)
class FailedRun:
    """A run of ours that failed: where, and with what error, nothing secret in it."""

    job: str
    run_id: str
    step: str | None
    error: str | None
    url: str | None


@dataclass(frozen=True, kw_only=True)
class FailedCheck:
    """A stated fact that did not hold in a run of ours."""

    check: str
    asset: str
    run_id: str
    url: str | None


@dataclass(frozen=True, kw_only=True)
class Failures:
    """The failures since a cursor."""

    runs: Sequence[FailedRun]
    checks: Sequence[FailedCheck]

    def __bool__(self) -> bool:
        return bool(self.runs or self.checks)


# A cursor holds, by the kind of a run's end, Dagster's number of the last that was read.
Cursor = Mapping[str, int]


def cursor_now(instance: dg.DagsterInstance) -> Cursor:
    """Returns the cursor as of now."""
    return {
        end.value: max(
            (
                record.storage_id
                for record in instance.fetch_run_status_changes(end, limit=1).records
            ),
            default=0,
        )
        for end in _ENDS
    }


def failures_since(context: dg.SensorEvaluationContext, before: Cursor) -> tuple[Failures, Cursor]:
    """Returns our failures since a cursor, and the next cursor.

    Others' runs may be in the same instance, and even in the same code location.
    """
    failed: list[FailedRun] = []
    checks: dict[str, FailedCheck] = {}
    cursor = dict(before)
    for end in _ENDS:
        for record in context.instance.fetch_run_status_changes(
            dg.RunStatusChangeRecordsFilter(event_type=end, after_storage_id=before[end.value]),
            ascending=True,
            limit=MOST,
        ).records:
            cursor[end.value] = record.storage_id
            run = context.instance.get_run_by_id(record.run_id)
            if run is None or not _is_here(context, run):
                continue
            if end is dg.DagsterEventType.RUN_FAILURE and _is_ours(run):
                failed.append(_failed_run(context.instance, run))
            checks |= _failed_checks(context.instance, run)
    return Failures(runs=failed, checks=list(checks.values())), cursor


# --- Runs ----------------------------------------------------------------------------------------


def _is_here(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Tells a run of this code location, or of none."""
    origin, here = run.remote_job_origin, context.code_location_origin
    if origin is None or here is None:
        return True
    place = origin.repository_origin.code_location_origin.location_name
    return place == here.location_name


def _is_ours(run: dg.DagsterRun) -> bool:
    """Tells a run of our jobs, or of our assets from the UI, that is not tried again."""
    keys = [
        *(run.asset_selection or ()),
        *(check.asset_key for check in run.asset_check_selection or ()),
    ]
    ours = run.job_name.startswith(f"{PREFIX}_") or any(key.path[0] == PREFIX for key in keys)
    return ours and run.tags.get(_WILL_RETRY) != "true"


def _failed_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> FailedRun:
    """Returns a failed run with its first failed step; a killed run has none."""
    failures = instance.get_records_for_run(
        run_id=run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=1
    ).records
    event = failures[0].event_log_entry.dagster_event if failures else None
    return FailedRun(
        job=run.job_name,
        run_id=run.run_id,
        step=None if event is None else event.step_key,
        error=None if event is None else _first_line(event.step_failure_data.error),
        url=_link(run.run_id),
    )


def _first_line(error: SerializableErrorInfo | None) -> str | None:
    if error is None:
        return None
    while error.cause is not None:
        error = error.cause
    return redacted(error.message.strip().split("\n")[0])


def _link(run_id: str) -> str | None:
    base = os.environ.get("SERVICE_DAGSTER_URL")
    return f"{base.rstrip('/')}/runs/{run_id}" if base else None


# --- Checks --------------------------------------------------------------------------------------


def _failed_checks(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dict[str, FailedCheck]:
    """Returns, by name, our checks that failed in a run with severity ERROR.

    They fail no run: the fault is in the data, not in the run.
    """
    events = instance.get_records_for_run(
        run_id=run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION
    ).records
    results = [event.event_log_entry.asset_check_evaluation for event in events]
    return {
        result.check_name: FailedCheck(
            check=result.check_name,
            asset=result.asset_key.to_user_string(),
            run_id=run.run_id,
            url=_link(run.run_id),
        )
        for result in results
        if result is not None
        and result.asset_key.path[0] == PREFIX
        and not result.passed
        and result.severity is dg.AssetCheckSeverity.ERROR
    }
