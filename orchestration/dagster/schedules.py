"""The schedules: a run where a block closed or a day has settled, and sealing each hour."""

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from orchestration.dagster.jobs import day, fast, sealing
from orchestration.dagster.keys import CLOSES_TAG, DUE_TAG, PREFIX
from orchestration.dagster.partitions import DAYS, key_of
from orchestration.dagster.resources import Store

if TYPE_CHECKING:
    from storage.verdicts.backlog import DueWork

_CRON_VARIABLE = "SERVICE_FAST_CRON"
_EACH_MINUTE = "* * * * *"
# The processes of a run that says for longer that it starts or works may have been killed. Two runs
# at once do no harm, and a run that works holds the lock on the derived tables.
_STARTS_WITHIN = timedelta(seconds=90)
NOTHING_DUE = "no block closed that holds a unit of an open experiment, and nothing else is due"
UNDER_WAY = "a run of the pipeline is under way"


class CronError(ValueError):
    """The variable holds no cron expression; the message says which form it needs."""


# --- Fast -----------------------------------------------------------------------------------------


def _fast(
    context: dg.ScheduleEvaluationContext, store: Store
) -> list[dg.RunRequest] | dg.SkipReason:
    """Requests a run where work is due: a tick without work is a few small queries.

    A block that closes within a minute is due as well: its run starts at once, and waits for the
    closing. So with a tick each minute, a tick a moment before a block closes delays the verdict by
    no minute; a slower schedule waits for its next tick. Where experiments of different graces
    close within that minute, the first closing waits for no other.
    """
    from orchestration.pipeline.failed_tick import failures_counted

    until_next = context.scheduled_execution_time + timedelta(minutes=1) - datetime.now(UTC)
    with failures_counted(store.engine, "backlog"):
        answer = _due(store, ahead=max(timedelta(), until_next))
        if not isinstance(answer, str):
            # No run that is in the queue, or began a moment ago, waits for these.
            answer = [
                work
                for work in answer
                if not _is_starting(context.instance, closes_at=work.closes_at)
            ] or UNDER_WAY
    if isinstance(answer, str):
        return dg.SkipReason(answer)
    # The first and the last of many closings get a run: each takes seconds of CPU to start.
    return [_request(work) for work in answer[:1] + answer[1:][-1:]]


def _request(work: "DueWork") -> dg.RunRequest:
    now = datetime.now(UTC)
    closes_at = (work.closes_at or now).isoformat()
    tags = {CLOSES_TAG: closes_at, DUE_TAG: work.sentence}
    return dg.RunRequest(run_key=closes_at, partition_key=key_of(now), tags=tags)


def _due(store: Store, *, ahead: timedelta) -> "list[DueWork] | str":
    """Returns the blocks that are due, or why no run is to be launched."""
    from orchestration.pipeline.steps import note_seen
    from storage.schema.clock import try_claim_derived_tables
    from storage.verdicts.backlog import due_work, note_nothing_due

    with store.reading() as connection:
        if not try_claim_derived_tables(connection):
            return UNDER_WAY
        # Environments without an experiment are noted too: their first asks what users have.
        as_of = note_seen(connection)
        due = due_work(connection, as_of=as_of, ahead=ahead)
        if not due:
            note_nothing_due(connection, as_of=as_of)
            return NOTHING_DUE
        return due


def _is_starting(instance: dg.DagsterInstance, *, closes_at: datetime | None) -> bool:
    """Tells whether a run waits in the queue, or began a moment ago: for a closing, or any."""
    now = datetime.now(UTC)
    tags = {} if closes_at is None else {CLOSES_TAG: closes_at.isoformat()}
    queued = dg.RunsFilter(job_name=fast.name, statuses=[dg.DagsterRunStatus.QUEUED], tags=tags)
    begun = dg.RunsFilter(
        job_name=fast.name,
        statuses=[
            dg.DagsterRunStatus.NOT_STARTED,
            dg.DagsterRunStatus.STARTING,
            dg.DagsterRunStatus.STARTED,
        ],
        tags=tags,
        created_after=now - _STARTS_WITHIN,
        # A clock that ran ahead created runs in the future.
        created_before=now + _STARTS_WITHIN,
    )
    return any(instance.get_runs_count(runs) for runs in (queued, begun))


def fast_schedule(cron: str) -> dg.ScheduleDefinition:
    """Returns the fast schedule."""
    try:
        return dg.schedule(
            name=f"{PREFIX}_fast",
            job=fast,
            cron_schedule=cron,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description="Each minute, or as SERVICE_FAST_CRON says: launches a run where a block"
            " closed that holds units of an open experiment, or where anything else is due.",
        )(_fast)
    except dg.DagsterInvalidDefinitionError:
        raise CronError(
            f"{_CRON_VARIABLE} is {cron!r}: it must be a cron expression of five fields, such as"
            f" '{_EACH_MINUTE}' for each minute or '*/5 * * * *' for every fifth"
        ) from None


each_minute = fast_schedule(os.environ.get(_CRON_VARIABLE) or _EACH_MINUTE)

# --- Day ------------------------------------------------------------------------------------------

# The run that rebuilt a day carries this tag: once its last metric has closed, once is enough.
REBUILT_TAG = f"{PREFIX}/rebuilt"
# A day that cannot be made equal to the log fails its run, and stays red.
_MOST_FAILURES = 3
_DONE_OR_TO_COME = [
    each
    for each in dg.DagsterRunStatus
    if each not in {dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE}
]


@dg.schedule(
    name=f"{PREFIX}_day",
    job=day,
    cron_schedule="17 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Once for each day that has settled, looked for each hour: the day rebuilt from the"
    f" log, every check and the ledger. A run that failed is tried again, {_MOST_FAILURES} times in"
    " all.",
)
def each_day(context: dg.ScheduleEvaluationContext, store: Store) -> dg.RunRequest | dg.SkipReason:
    """Requests the run of a settled day: one an hour, so that weeks of history hold nothing up."""
    from storage.schema.clock import closed_instant
    from storage.verdicts.backlog import settled_days

    with store.reading() as connection:
        settled = settled_days(connection, as_of=closed_instant(connection))
    keys = (settled_day.isoformat() for settled_day in settled)
    for key in filter(DAYS.has_partition_key, keys):
        if not _is_done(context.instance, key):
            return dg.RunRequest(
                run_key=f"{context.scheduled_execution_time.isoformat()}/{key}",
                partition_key=key,
                tags={REBUILT_TAG: key},
            )
    return dg.SkipReason("each settled day was rebuilt")


def _is_done(instance: dg.DagsterInstance, key: str) -> bool:
    def runs(statuses: list[dg.DagsterRunStatus]) -> int:
        tags = {REBUILT_TAG: key}
        return instance.get_runs_count(
            dg.RunsFilter(job_name=day.name, tags=tags, statuses=statuses)
        )

    failures = runs([dg.DagsterRunStatus.FAILURE])
    return failures >= _MOST_FAILURES or runs(_DONE_OR_TO_COME) > 0


# --- Sealing --------------------------------------------------------------------------------------


@dg.schedule(
    name=f"{PREFIX}_sealing",
    job=sealing,
    cron_schedule="7 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each hour: the log observed, and the hour that ended sealed.",
)
def each_hour(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Requests a run for the day of the hour that ended."""
    at = context.scheduled_execution_time
    return dg.RunRequest(run_key=at.isoformat(), partition_key=key_of(at - timedelta(hours=1)))


SCHEDULES = (each_minute, each_day, each_hour)
