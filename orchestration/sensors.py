"""The sensor: a walk in each tick for which something closed, a run where an answer turned."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import dagster as dg
from sqlalchemy import Connection

from orchestration.checklist import ChecklistsTooLong, keep_checklists
from orchestration.failed_tick import failures_counted
from orchestration.jobs import fast
from orchestration.keys import PREFIX
from orchestration.partitions import key_of
from orchestration.resources import Store
from orchestration.walk import Walked, WalkTooLong, WalkUnderWay, walk
from storage.backlog import count_events, unwalked_from
from storage.clock import try_claim_derived_tables
from storage.gauges import note_good_tick
from storage.progress import last_turn

INTERVAL_SECONDS = 30
# Dagster waits 60 seconds for a tick; one that takes longer counts as failed, and goes on all the
# same. And where its daemon has no threads, everybody's sensors wait for one another.
MOST_SECONDS = 20.0
# What lies back so far is walked in a tick only where it is not much.
_BACKLOG = timedelta(hours=2)
MOST_EVENTS = 500_000
# Once a walk took too long for a tick, how long runs do it before a tick tries again.
_BY_RUNS = timedelta(hours=1)
# After which a run is asked for again, where the one before did not do the work.
_AGAIN = timedelta(minutes=5)


@dg.sensor(
    name=f"{PREFIX}_fast",
    job=fast,
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Each half minute: where a block closed, walks in the tick itself. Launches a run"
    " only where an answer turned by that, or where the walk is too long for a tick.",
)
def each_half_minute(context: dg.SensorEvaluationContext, store: Store) -> dg.SensorResult:
    """Walks where there is anything to walk, and keeps the checklists either way."""
    result = _walked(store, context.cursor)
    # A walk that somebody holds up holds up the checklists too: they wait for another tick.
    with (
        suppress(ChecklistsTooLong),
        failures_counted(store.engine, "checklists"),
        store.reading() as connection,
    ):
        keep_checklists(connection)
    with store.reading() as connection:
        note_good_tick(connection)
    return result


def _walked(store: Store, cursor: str | None) -> dg.SensorResult:
    """Asks the store first: a tick with nothing to walk is a small query.

    Whatever broke off before, a tick, a run or the server below both, left its mark in the store.
    So it matters to no tick who walked last and how that ended, or how many instances walk.

    The cursor is the time of the last walk that took too long for a tick.
    """
    as_of = datetime.now(UTC)
    with failures_counted(store.engine, "backlog"), store.reading() as connection:
        waiting = unwalked_from(connection)
        long = waiting is not None and _is_long(connection, waiting, cursor, as_of=as_of)
        if long and not try_claim_derived_tables(connection):
            return dg.SensorResult(skip_reason="another walk is under way")
    if waiting is None:
        return _shown(store, "nothing closed since the last walk", as_of)
    if long:
        return _handed_over(waiting, as_of)
    try:
        walked = walk(store.engine, most_seconds=MOST_SECONDS)
    except WalkUnderWay as other:
        return dg.SensorResult(skip_reason=str(other))
    except WalkTooLong:
        return _handed_over(waiting, as_of, cursor=as_of.isoformat())
    overdrawn = sum(walked.seconds.values()) > MOST_SECONDS
    return _shown(store, _told(walked), as_of, cursor=as_of.isoformat() if overdrawn else None)


def _is_long(
    connection: Connection, waiting: datetime, cursor: str | None, *, as_of: datetime
) -> bool:
    """Returns whether the work is for a run, as far as that can be told beforehand."""
    # A cursor in the future is that of a clock that ran ahead.
    if cursor and timedelta() <= as_of - datetime.fromisoformat(cursor) < _BY_RUNS:
        return True
    if as_of - waiting < _BACKLOG:
        return False
    return count_events(connection, after=waiting, most=MOST_EVENTS) == MOST_EVENTS


def _handed_over(waiting: datetime, as_of: datetime, cursor: str | None = None) -> dg.SensorResult:
    """Asks for a run that walks, once in a while for the same work."""
    turn = int(as_of.timestamp() // _AGAIN.total_seconds())
    return _run(f"walk from {waiting.isoformat()}, {turn}", as_of, cursor)


def _shown(store: Store, done: str, as_of: datetime, cursor: str | None = None) -> dg.SensorResult:
    """Asks for a run that shows the answers that turned, where no run has shown them yet."""
    with store.reading() as connection:
        turned_at = last_turn(connection)
    if turned_at is None:
        return dg.SensorResult(skip_reason=done, cursor=cursor)
    return _run(f"turned at {turned_at.isoformat()}", as_of, cursor)


def _run(key: str, as_of: datetime, cursor: str | None) -> dg.SensorResult:
    request = dg.RunRequest(run_key=key, partition_key=key_of(as_of))
    return dg.SensorResult(run_requests=[request], cursor=cursor)


def _told(walked: Walked) -> str:
    return (
        f"walked to {walked.walked_to:%H:%M:%S}: {walked.experiments} experiments computed anew,"
        f" {sum(walked.seconds.values()):.1f} s; no answer turned"
    )


SENSORS = (each_half_minute,)
