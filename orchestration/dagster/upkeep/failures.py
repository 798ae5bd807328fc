"""Failures: the runs and the checks of ours that went wrong, as Dagster's records tell them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from orchestration.dagster.checks import FACTS
from orchestration.dagster.keys import PREFIX
from orchestration.dagster.upkeep.private_dagster import AssetCheckExecutionRecordStatus
from orchestration.outbound.redaction import redacted

# So many runs, and failures of each check, are told of at once; what is more comes after.
MOST = 20
# Set by Dagster where the run is tried again: how the last attempt ends is what matters.
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
    """A stated fact that a run of ours found not to hold."""

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


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The newest failures that an alert has reported.

    Attributes:
        run: Dagster's number of the last failure of a run.
        checks: By check, its numbers of the last failures. A check has its number since it was
            planned: one that fails late may have a smaller one than another that failed before.
    """

    run: int
    checks: Mapping[str, Sequence[int]]


def cursor_now(instance: dg.DagsterInstance) -> Cursor:
    """Returns the cursor as of now."""
    records = instance.fetch_run_status_changes(dg.DagsterEventType.RUN_FAILURE, limit=1).records
    return Cursor(
        run=records[0].storage_id if records else 0,
        checks={name: _numbers(failed) for name, failed in _failed_checks(instance).items()},
    )


def failures_since(context: dg.SensorEvaluationContext, before: Cursor) -> tuple[Failures, Cursor]:
    """Returns our failures since a cursor, and the next cursor.

    Others' runs may be in the same instance, and even in the same code location.
    """
    records = context.instance.fetch_run_status_changes(
        dg.RunStatusChangeRecordsFilter(
            event_type=dg.DagsterEventType.RUN_FAILURE, after_storage_id=before.run
        ),
        ascending=True,
        limit=MOST,
    ).records
    ids = [record.run_id for record in records]
    runs = context.instance.get_runs(dg.RunsFilter(run_ids=ids)) if ids else []
    failed = _failed_checks(context.instance)
    failures = Failures(
        runs=[_failed_run(context.instance, run) for run in runs if _is_ours(context, run)],
        checks=[
            check
            for name, newest in failed.items()
            if (check := _news(newest, before.checks.get(name, ()))) is not None
        ],
    )
    cursor = Cursor(
        run=max((record.storage_id for record in records), default=before.run),
        checks={name: _numbers(newest) for name, newest in failed.items()},
    )
    return failures, cursor


# --- Runs ----------------------------------------------------------------------------------------


def _is_ours(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Tells a run of our jobs, or of our assets from the UI, that is not tried again."""
    origin, here = run.remote_job_origin, context.code_location_origin
    if origin is not None and here is not None:
        place = origin.repository_origin.code_location_origin.location_name
        if place != here.location_name:
            return False
    keys = [
        *(run.asset_selection or ()),
        *(check.asset_key for check in run.asset_check_selection or ()),
    ]
    ours = run.job_name.startswith(f"{PREFIX}_") or any(key.path[0] == PREFIX for key in keys)
    return ours and run.tags.get(_WILL_RETRY) != "true"


def _failed_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> FailedRun:
    """Returns a failed run with its first failed step; one that was killed has none."""
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


def _failed_checks(instance: dg.DagsterInstance) -> dict[str, Sequence[Any]]:
    """Returns, by fact, Dagster's records of its last failures, the newest first."""
    return {
        fact.check_key.name: instance.event_log_storage.get_asset_check_execution_history(
            fact.check_key, limit=MOST, status={AssetCheckExecutionRecordStatus.FAILED}
        )
        for fact in FACTS
    }


def _numbers(records: Sequence[Any]) -> list[int]:
    return [record.id for record in records]


def _news(newest: Sequence[Any], known: Sequence[int]) -> FailedCheck | None:
    """Returns the newest failure of severity ERROR that was not known.

    It fails no run: the run found a fault in the data, not in itself.
    """
    for record in newest:
        # Old ones come into sight again where newer ones are deleted.
        if record.id in known or record.id < min(known, default=0):
            continue
        evaluation = record.event.dagster_event.asset_check_evaluation_data
        if evaluation.severity is dg.AssetCheckSeverity.ERROR:
            return FailedCheck(
                check=record.key.name,
                asset=record.key.asset_key.to_user_string(),
                run_id=record.run_id,
                url=_link(record.run_id),
            )
    return None
