"""Housekeeping: the daily job after which the disk holds no more than the day before."""

import os
from datetime import UTC, datetime

import dagster as dg

from orchestration.dagster.jobs import run_tags
from orchestration.dagster.keys import PREFIX
from orchestration.dagster.resources import Store
from orchestration.dagster.upkeep.own_runs import OwnRuns

_VARIABLE = "SERVICE_RETENTION_DAYS"
_HOT_VARIABLE = "SERVICE_HOT_DAYS"
_SHOWN = 31


class RetentionError(ValueError):
    """The variable holds no number of days, or too few; the message says the rule."""


def retention_days() -> int:
    """Returns how many days raw events are kept, as the environment says it."""
    from storage.upkeep.retention import DEFAULT_DAYS, LEAST_DAYS

    return _days(_VARIABLE, default=DEFAULT_DAYS, least=LEAST_DAYS)


def hot_days() -> int:
    """Returns how many whole days PostgreSQL keeps of raw events, as the environment says it."""
    from storage.lake.hot_days import DEFAULT_HOT_DAYS, LEAST_HOT_DAYS

    return _days(_HOT_VARIABLE, default=DEFAULT_HOT_DAYS, least=LEAST_HOT_DAYS)


def _days(variable: str, *, default: int, least: int) -> int:
    said = os.environ.get(variable, "").strip() or str(default)
    if not said.isdecimal() or int(said) < least:
        raise RetentionError(
            f"{variable} is {said!r}: it must be a whole number of days, at least {least}"
        )
    return int(said)


# --- What the store keeps ------------------------------------------------------------------------


@dg.op(
    name="drop_old_days",
    out={"dropped": dg.Out(dg.Nothing)},
    description="Drops the days of raw events that are older than the retention, were written into"
    " no later, and that no open experiment reads. A day in use is left for tomorrow.",
)
def drop_days(context: dg.OpExecutionContext, store: Store) -> None:
    """Each in a transaction of its own."""
    from storage.upkeep.retention import compact_replays, drop_old_days

    days = retention_days()
    done = drop_old_days(store.engine, as_of=datetime.now(UTC), retention_days=days)
    with store.reading() as connection:
        compact_replays(connection)
    if done.held:
        context.log.warning("%s days were in use and stay until tomorrow", len(done.held))
    context.add_output_metadata(
        {
            "retention_days": days,
            "dropped_days": len(done.dropped),
            "days": [day.day.isoformat() for day in done.dropped[:_SHOWN]],
            "events": sum(day.events for day in done.dropped),
            "freed_bytes": sum(day.size for day in done.dropped),
            "held_days": [day.isoformat() for day in done.held[:_SHOWN]],
        },
        output_name="dropped",
    )


@dg.op(
    name="move_old_days",
    ins={"dropped": dg.In(dg.Nothing)},
    description="Leaves the days of raw events that are older than the hot days to the lake, once"
    " each of their files was compared and no open experiment has still to read them. PostgreSQL"
    " keeps of them what look-ups of single rows need. A day in use is left for tomorrow.",
)
def move_days(context: dg.OpExecutionContext, store: Store) -> None:
    """Each in a transaction of its own, after its files were read back."""
    from storage.lake.hot_days import move_old_days
    from storage.lake.lake import store_lake

    days = hot_days()
    lake = store_lake(store.engine)
    done = move_old_days(store.engine, lake, as_of=datetime.now(UTC), hot_days=days)
    if done.held:
        context.log.warning(
            "%s days stay until tomorrow: they are in use, or a file of theirs cannot be read back",
            len(done.held),
        )
    context.add_output_metadata(
        {
            "hot_days": days,
            "moved_days": len(done.moved),
            "days": [day.day.isoformat() for day in done.moved[:_SHOWN]],
            "kept_events": sum(day.kept for day in done.moved),
            "freed_bytes": sum(day.freed for day in done.moved),
            "held_days": [day.isoformat() for day in done.held[:_SHOWN]],
        }
    )


@dg.op(
    name="delete_expired_units",
    ins={"dropped": dg.In(dg.Nothing)},
    description="Deletes the units of decided experiments whose raw events are gone. Their cells,"
    " evidence and verdicts stay.",
)
def expire_units(context: dg.OpExecutionContext, store: Store) -> None:
    """In batches, and only so many in a run."""
    from storage.upkeep.retention import delete_expired_units

    gone = delete_expired_units(store.engine, as_of=datetime.now(UTC))
    context.add_output_metadata({"rows": sum(gone.values()), **gone})


@dg.op(
    name="delete_old_deliveries",
    description="Deletes what was delivered to webhooks, or given up, longer ago than the"
    " retention. That a verdict was announced is never forgotten.",
)
def expire_deliveries(context: dg.OpExecutionContext, store: Store) -> None:
    """In a single statement: there are a few for each experiment."""
    from storage.upkeep.retention import delete_old_deliveries

    with store.reading() as connection:
        gone = delete_old_deliveries(connection, as_of=datetime.now(UTC), days=retention_days())
    context.add_output_metadata({"rows": gone})


@dg.op(
    name="delete_old_names",
    description="Deletes the names of events that did not come for 28 days, and that no experiment"
    " reads: whoever has a public key can invent some.",
)
def expire_names(context: dg.OpExecutionContext, store: Store) -> None:
    """In a single statement: a project has a thousand invented names at most."""
    from storage.upkeep.retention import delete_old_names

    with store.reading() as connection:
        context.add_output_metadata({"rows": delete_old_names(connection, as_of=datetime.now(UTC))})


@dg.op(
    name="tend_lake",
    ins={"dropped": dg.In(dg.Nothing)},
    description="Writes the files of the sealed log anew that hold events of forgotten people,"
    " deletes those that are listed no longer, and sweeps away what a dead run left over a day ago."
    " A file that is not as it is listed is written anew from PostgreSQL where that has its events,"
    " and else named and left alone. What is in use is left for tomorrow.",
)
def tend_lake(context: dg.OpExecutionContext, store: Store) -> None:
    """After the days that went: their files go with them."""
    from storage.lake.erasures import Rewriting, rewrite_files
    from storage.lake.lake import store_lake
    from storage.lake.removal import delete_unlisted, sweep

    lake = store_lake(store.engine)
    rewriting = rewrite_files(store.engine, lake)
    deleted = delete_unlisted(store.engine, lake)
    if rewriting is None or deleted is None:
        context.log.warning("files of the lake are in use: the rest is done with the next run")
    rewriting = rewriting or Rewriting()
    if rewriting.wrong:
        context.log.warning(
            "%s files of the lake are not as they are listed, so who was forgotten stays in their"
            " bytes until the right ones are back: %s",
            len(rewriting.wrong),
            ", ".join(rewriting.wrong[:_SHOWN]),
        )
    context.add_output_metadata(
        {
            "erasures_ended": rewriting.erasures,
            "files_rewritten": rewriting.files,
            "hours_reopened": rewriting.reopened,
            "wrong_files": rewriting.wrong[:_SHOWN],
            "files_deleted": deleted or 0,
            "files_swept": sweep(store.engine, lake),
        }
    )


# --- What Dagster keeps --------------------------------------------------------------------------


@dg.op(
    name="delete_old_runs",
    description="Deletes the runs of our own jobs: those that succeeded after 14 days, the others"
    " after 30. The last run of each day stays for half a year, or the day would show as missing.",
)
def delete_old_runs(context: dg.OpExecutionContext) -> None:
    """Deletes old runs of our jobs in this code location, and no run of another location."""
    origin = context.run.remote_job_origin
    if origin is None:
        context.log.info("this run is of no code location: nothing of the instance is touched")
        return
    # Somebody may have merged our definitions with theirs.
    jobs = [name for name in context.repository_def.job_names if name.startswith(f"{PREFIX}_")]
    runs = OwnRuns(instance=context.instance, origin=origin.repository_origin, jobs=sorted(jobs))
    context.add_output_metadata({"deleted": runs.delete(as_of=datetime.now(UTC))})


# --- When ----------------------------------------------------------------------------------------


@dg.job(
    name=f"{PREFIX}_housekeeping",
    description="Drops old days of raw events and what rests on them, leaves those that are no"
    " longer hot to the lake, writes those who were forgotten out of the sealed log, and deletes"
    " our own old runs. It runs once a day.",
    tags=run_tags("housekeeping", minutes=60, priority=-10),
    executor_def=dg.in_process_executor,
)
def housekeeping() -> None:
    """Steps that need not wait for each other don't: where a step fails, the others are done."""
    dropped = drop_days()
    expire_units(dropped)
    tend_lake(dropped)
    move_days(dropped)
    expire_deliveries()
    expire_names()
    delete_old_runs()


# Backups of everybody begin at the hour, so this does not.
each_night = dg.ScheduleDefinition(
    name=f"{PREFIX}_housekeeping",
    job=housekeeping,
    cron_schedule="41 3 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each night.",
)
