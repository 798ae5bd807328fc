"""Retention: which days of raw events are old enough to go, and the rows that go with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from storage.lake.removal import unlist_day
from storage.postgres.engine import SCHEMA
from storage.postgres.lock_waits import BRIEFLY, is_locked, unless_locked
from storage.schema.clock import claim_derived_tables, receipt_time
from storage.schema.partitions import claim_past_days, partition_name, present_days
from storage.schema.policy_columns import JUDGED_METRICS
from storage.schema.tables import tombstones
from storage.upkeep.gone_events import READ

# Longer than an experiment of the usual horizon can still need what it read.
LEAST_DAYS = 60
DEFAULT_DAYS = 90

# --- Days that go --------------------------------------------------------------------------------

_OLD_DAYS = text(f"""
SELECT kept.day
FROM unnest(CAST(:present AS date[])) AS kept (day)
WHERE kept.day < :first_kept
  AND NOT EXISTS (
      SELECT FROM {SCHEMA}.replayed_days AS r
      WHERE r.day = kept.day AND r.written_on >= :first_kept
  )
  AND NOT EXISTS (
      SELECT FROM ({READ}) AS x
      WHERE x.is_read AND x.reads_from < kept.day + 1
  )
ORDER BY kept.day
""")


def old_days(connection: Connection, *, as_of: datetime, retention_days: int) -> list[date]:
    """Returns the days of the log that may go, the oldest first.

    Those that ended, and were last written, more than the retention ago, and that no
    experiment can need that is open, is followed up, or waits for its deploy.
    """
    first_kept = as_of.astimezone(UTC).date() - timedelta(days=retention_days)
    bound = {"present": present_days(connection), "first_kept": first_kept}
    return list(connection.execute(_OLD_DAYS, bound).scalars())


@dataclass(frozen=True, kw_only=True)
class DroppedDay:
    """A day that went: about how many events it held, and how many bytes it took."""

    day: date
    events: int
    size: int


_SIZE = text("""
SELECT greatest(reltuples, 0)::bigint AS events, pg_total_relation_size(oid) AS size
FROM pg_class WHERE oid = to_regclass(:name)
""")
_NOTE_DROPPED = text("""
INSERT INTO dropped_days (day, dropped_at) VALUES (:day, :at)
ON CONFLICT (day) DO UPDATE SET dropped_at = excluded.dropped_at
""")
_FORGET_REPLAYS = text("DELETE FROM replayed_days WHERE day = :day")
_FORGET_SEEN = text("""
DELETE FROM seen_commits WHERE block < (CAST(:day AS date) + 1) AT TIME ZONE 'UTC'
""")
_FORGET_NAMES = text("""
DELETE FROM forgotten_names WHERE received_at < (CAST(:day AS date) + 1) AT TIME ZONE 'UTC'
""")


def drop_day(
    connection: Connection, day: date, *, as_of: datetime, retention_days: int
) -> DroppedDay | None:
    """Drops a day of the log, if it may still go, and remembers that it is gone.

    Args:
        connection: In a transaction of its own, to be committed at once: it locks the log.
        retention_days: How old the day and its last write must be.

    Returns:
        What went; None where the day was written, or an experiment needs it, since it was chosen.
    """
    connection.execute(BRIEFLY)
    claim_past_days(connection)
    if day not in old_days(connection, as_of=as_of, retention_days=retention_days):
        return None
    name = partition_name(day)
    had = connection.execute(text(f"SELECT EXISTS (SELECT FROM {name})")).scalar_one()
    taken = connection.execute(_SIZE, {"name": f"{SCHEMA}.{name}"}).one()
    connection.execute(text(f"DROP TABLE {name}"))
    in_files = unlist_day(connection, day)
    connection.execute(_FORGET_REPLAYS, {"day": day})
    connection.execute(_FORGET_SEEN, {"day": day})
    connection.execute(_FORGET_NAMES, {"day": day})
    if had:
        # Last of all: the pipeline of all projects waits for a receipt.
        connection.execute(_NOTE_DROPPED, {"day": day, "at": receipt_time(connection)})
    return DroppedDay(day=day, events=max(taken.events, in_files) if had else 0, size=taken.size)


@dataclass(frozen=True, kw_only=True)
class DayDrop:
    """The result of a round of dropping; `held` are days that were in use, for the next round."""

    dropped: Sequence[DroppedDay]
    held: Sequence[date]


def drop_old_days(
    engine: Engine, *, as_of: datetime, retention_days: int, limit: int = 62, attempts: int = 20
) -> DayDrop:
    """Drops the days that may go, each in a transaction of its own.

    Args:
        attempts: How often a day that is in use is tried, four times a second.
    """
    with engine.begin() as connection:
        wanted = old_days(connection, as_of=as_of, retention_days=retention_days)[:limit]

    def drop(day: date) -> DroppedDay | None:
        with engine.begin() as connection:
            return drop_day(connection, day, as_of=as_of, retention_days=retention_days)

    dropped: list[DroppedDay] = []
    for number, day in enumerate(wanted):
        try:
            outcome = unless_locked(partial(drop, day), attempts=attempts)
        except OperationalError as error:
            if not is_locked(error):
                raise
            # A reader that holds the log so long reads all of it: the other days are in use too.
            return DayDrop(dropped=dropped, held=wanted[number:])
        if outcome is not None:
            dropped.append(outcome)
    return DayDrop(dropped=dropped, held=())


_COMPACT = text("""
DELETE FROM replayed_days AS r
WHERE EXISTS (SELECT FROM replayed_days AS l WHERE l.day = r.day AND l.written_on > r.written_on)
""")


def compact_replays(connection: Connection) -> int:
    """Keeps of each day only when it was last written, and returns how many rows went."""
    return connection.execute(_COMPACT).rowcount


# --- Units ---------------------------------------------------------------------------------------

# Rows of a unit each, with its name; what is counted of them stays: cells, evidence, verdicts.
_UNIT_TABLES = tuple(
    name
    for tombstone in tombstones
    for name in (tombstone.name.removeprefix("tombstone_"), tombstone.name)
)
# Verdicts are checked against their units for a day after publication.
_SETTLED_FOR = timedelta(days=2)

_EXPIRED = text(f"""
SELECT x.experiment_id
FROM ({READ}) AS x
WHERE x.decided AND x.frozen_at IS NOT NULL AND x.published_at < :settled_before
  AND NOT EXISTS (
      SELECT FROM unnest(CAST(:present AS date[])) AS kept (day)
      WHERE kept.day + 1 > x.counts_from
        AND kept.day <= x.reads_to
  )
  AND ({
    " OR ".join(
        f"EXISTS (SELECT FROM {name} AS u WHERE u.experiment_id = x.experiment_id)"
        for name in _UNIT_TABLES
    )
})
ORDER BY x.experiment_id
""")


def expired_experiments(connection: Connection, *, as_of: datetime) -> list[str]:
    """Returns the decided experiments of which units are stored, and no raw event is any more."""
    bound = {"present": present_days(connection), "settled_before": as_of - _SETTLED_FOR}
    return list(connection.execute(_EXPIRED, bound).scalars())


def delete_expired_units(
    engine: Engine, *, as_of: datetime, limit: int = 5_000_000, at_once: int = 20_000
) -> dict[str, int]:
    """Deletes the units of decided experiments whose raw events are gone.

    Nothing can compute them anew, and nothing reads them but an audit, which needs the events.

    Args:
        at_once: How many rows in a transaction, for which the pipeline waits.
    """
    with engine.begin() as connection:
        expired = expired_experiments(connection, as_of=as_of)
    gone = dict.fromkeys(_UNIT_TABLES, 0)
    for table in _UNIT_TABLES:
        statement = text(
            f"DELETE FROM {table} WHERE ctid = ANY(ARRAY("
            f"SELECT ctid FROM {table} WHERE experiment_id = ANY(:expired) LIMIT :at_once))"
        )
        while sum(gone.values()) < limit:
            with engine.begin() as connection:
                claim_derived_tables(connection)
                bound = {"expired": expired, "at_once": at_once}
                went = connection.execute(statement, bound).rowcount
            gone[table] += went
            if went < at_once:
                break
    return gone


# --- Names of events -----------------------------------------------------------------------------

_UNSEEN = timedelta(days=28)
_OLD_NAMES = text(f"""
WITH read AS (
    SELECT DISTINCT x.project_id, e.event
    FROM experiments AS x
    CROSS JOIN LATERAL jsonb_array_elements({JUDGED_METRICS}) AS m (metric)
    CROSS JOIN LATERAL jsonb_array_elements_text(m.metric -> 'sources') AS e (event)
)
DELETE FROM seen_names AS s
-- Those of history came at no time: they stay.
WHERE isfinite(s.newest_at) AND s.newest_at < :before
  AND NOT EXISTS (SELECT FROM read AS r WHERE (r.project_id, r.event) = (s.project_id, s.event))
""")


def delete_old_names(connection: Connection, *, as_of: datetime) -> int:
    """Deletes the names of events that did not come for 28 days, and that no experiment reads."""
    return connection.execute(_OLD_NAMES, {"before": as_of - _UNSEEN}).rowcount


# --- Deliveries ----------------------------------------------------------------------------------

_DELIVERED = text("""
DELETE FROM deliveries WHERE coalesce(delivered_at, given_up_at) < :before
""")


def delete_old_deliveries(connection: Connection, *, as_of: datetime, days: int) -> int:
    """Deletes deliveries that ended so many days ago; that a verdict was announced stays known."""
    return connection.execute(_DELIVERED, {"before": as_of - timedelta(days=days)}).rowcount
