"""Hot days: how long PostgreSQL keeps whole days of the log that the lake holds as well.

An older day is *moved*: of its events PostgreSQL keeps those alone that look-ups of single rows may
need, and all others are in the lake's files alone.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from storage.lake.lake import Lake
from storage.lake.sealed_hours import NAMED_DAYS, keep_files, listed_files, note_verified
from storage.lake.verification import wrong_files
from storage.pipeline.steps import IDENTITY
from storage.postgres.engine import SCHEMA
from storage.postgres.lock_waits import BRIEFLY, is_locked, unless_locked
from storage.schema.encoding import PERSON
from storage.schema.partitions import claim_past_days, partition_name, present_days
from storage.schema.policy_columns import SEEN_FROM

LEAST_HOT_DAYS = 1
DEFAULT_HOT_DAYS = 7

_IDENTITY = f"{IDENTITY // 1_000_000} seconds"

_UNREAD = f"""
SELECT x.experiment_id, coalesce(min(c.at), {SEEN_FROM})
    -- A client's clock may run ahead, and checks look at the last hour that was read.
    - interval '1 hour' AS reads_from
FROM {SCHEMA}.experiments AS x
JOIN {SCHEMA}.verdicts AS v USING (experiment_id)
LEFT JOIN {SCHEMA}.follow_ups AS f ON f.experiment_id = x.experiment_id AND f.state = 'running'
LEFT JOIN {SCHEMA}.cursors AS c
  ON c.experiment_id = x.experiment_id AND c.stage IN ('exposures', 'conversions')
WHERE x.frozen_at IS NOT NULL AND (NOT v.decided OR f.experiment_id IS NOT NULL)
GROUP BY x.experiment_id
"""

_MOVABLE = text(f"""
SELECT kept.day, kept.day < :first_named AS is_thin
FROM unnest(CAST(:present AS date[])) AS kept (day)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE part = 0 AND sealed_at IS NOT NULL) AS sealed_hours,
        bool_or(moved_at IS NULL AND file IS NOT NULL) AS is_hot,
        -- It was moved while its users were still asked for.
        bool_or(moved_at < (kept.day + CAST(:named_days AS integer))::timestamp AT TIME ZONE 'UTC')
            AS is_thick,
        bool_and(sealed_at IS NOT NULL AND (
            file IS NULL OR moved_at IS NOT NULL OR compared_at IS NOT NULL
        )) AS is_compared
    FROM sealed_hours
    WHERE hour >= kept.day::timestamp AT TIME ZONE 'UTC'
      AND hour < (kept.day + 1)::timestamp AT TIME ZONE 'UTC'
) AS sealed
WHERE kept.day < :first_hot AND sealed.sealed_hours = 24 AND sealed.is_compared
  AND (sealed.is_hot OR sealed.is_thick AND kept.day < :first_named)
  AND NOT EXISTS (
      SELECT FROM replayed_hours AS r WHERE CAST(r.hour AT TIME ZONE 'UTC' AS date) = kept.day
  )
  AND NOT EXISTS (
      SELECT FROM replayed_days AS r WHERE r.day = kept.day AND r.written_on >= :first_hot
  )
  AND NOT EXISTS (
      SELECT FROM ({_UNREAD}) AS x
      WHERE x.reads_from - CASE WHEN kept.day < :first_named THEN interval '{_IDENTITY}'
          ELSE interval '0' END < (kept.day + 1)::timestamp AT TIME ZONE 'UTC'
  )
ORDER BY kept.day
""")


def movable_days(connection: Connection, *, as_of: datetime, hot_days: int) -> dict[date, bool]:
    """Returns the days of the log that may leave PostgreSQL, the oldest first.

    Those that ended, and were last written, more than the hot days ago, of which each hour is in a
    file that was compared with PostgreSQL's events, and that no open experiment has still to read.
    Returns of each whether nobody asks any more when its sessions named their users.
    """
    today, named_days = as_of.astimezone(UTC).date(), hot_days + NAMED_DAYS
    bound = {
        "present": present_days(connection),
        "first_hot": today - timedelta(days=hot_days),
        "first_named": today - timedelta(days=named_days),
        "named_days": named_days,
    }
    return {row.day: row.is_thin for row in connection.execute(_MOVABLE, bound)}


@dataclass(frozen=True, kw_only=True)
class MovedDay:
    """A day that was moved; `freed` is by how many bytes it is smaller there."""

    day: date
    kept: int
    freed: int


@dataclass(frozen=True, kw_only=True)
class DayMove:
    """The result of a round of moving."""

    moved: list[MovedDay]
    held: list[date]


# Rows of old days that are still read singly: a session's user, and every name that was used. What
# a policy reads of such days is read from the files.
_KEEP = """
CREATE TABLE {kept} (LIKE runtime_events INCLUDING ALL);
INSERT INTO {kept}
WITH names AS (
    SELECT project_id, environment, event, commit_sha, route,
        GROUPING(event, commit_sha, route) AS grouped, max(received_at) AS received_at
    FROM {day}
    GROUP BY GROUPING SETS (
        (project_id, environment, event), (project_id, environment, commit_sha),
        (project_id, environment, route)
    )
), needed AS (
    {named}
    UNION
    SELECT max(e.ctid) FROM {day} AS e JOIN names AS n USING (project_id, environment, received_at)
    WHERE n.grouped = 3 AND n.event = e.event
    GROUP BY project_id, environment, e.event
    UNION
    SELECT max(e.ctid) FROM {day} AS e JOIN names AS n USING (project_id, environment, received_at)
    WHERE n.grouped = 5 AND n.commit_sha = e.commit_sha
    GROUP BY project_id, environment, e.commit_sha
    UNION
    SELECT max(e.ctid) FROM {day} AS e JOIN names AS n USING (project_id, environment, received_at)
    WHERE n.grouped = 6 AND n.route = e.route
    GROUP BY project_id, environment, e.route
)
SELECT e.* FROM {day} AS e JOIN needed AS n ON n.place = e.ctid
ORDER BY e.received_at;
ALTER TABLE {kept} ADD CONSTRAINT of_its_day
    CHECK (received_at >= '{begin}' AND received_at < '{end}');
"""

_ALL_NAMED = "SELECT ctid AS place FROM {day} WHERE pseudonym IS NOT NULL"
# A forgotten person is known by the sessions that named them.
_TIES = f"""
    SELECT min(ctid) AS place FROM {{day}} WHERE pseudonym IS NOT NULL
    GROUP BY project_id, environment, session_id, pseudonym, trusted, properties ->> '{PERSON}'
"""

# With the constraint a partition is attached without being read again.
_REPLACE = """
DROP TABLE {day};
ALTER TABLE {kept} RENAME TO {day};
ALTER TABLE runtime_events ATTACH PARTITION {day} FOR VALUES FROM ('{begin}') TO ('{end}');
ALTER TABLE {day} DROP CONSTRAINT of_its_day;
"""

_NOTE_MOVED = text("""
UPDATE sealed_hours SET moved_at = :at
WHERE CAST(hour AT TIME ZONE 'UTC' AS date) = :day
""")

_SIZE = text("SELECT pg_total_relation_size(to_regclass(:name))")


def move_old_days(
    engine: Engine,
    lake: Lake,
    *,
    as_of: datetime,
    hot_days: int,
    limit: int = 31,
    attempts: int = 20,
) -> DayMove:
    """Moves days that may leave PostgreSQL, each in a transaction, tried four times a second."""
    with engine.begin() as connection:
        wanted = movable_days(connection, as_of=as_of, hot_days=hot_days)
    moved: list[MovedDay] = []
    held: list[date] = []
    for day in list(wanted)[:limit]:
        move = _Move(engine=engine, day=day, as_of=as_of, hot_days=hot_days, attempts=attempts)
        outcome = None if _wrong_files(engine, lake, day) else move.unless_used()
        if outcome is None:
            held.append(day)
        else:
            moved.append(outcome)
    return DayMove(moved=moved, held=held)


def _wrong_files(engine: Engine, lake: Lake, day: date) -> bool:
    """Returns whether a file of a day is not as it is listed, and notes which."""
    with engine.begin() as connection:
        keep_files(connection)
        files = listed_files(connection, "CAST(hour AT TIME ZONE 'UTC' AS date) = :day", day=day)
        faults = wrong_files(lake, files)
        note_verified(connection, files, faults)
    return bool(faults)


@dataclass(frozen=True, kw_only=True)
class _Move:
    """A day that is moved."""

    engine: Engine
    day: date
    as_of: datetime
    hot_days: int
    attempts: int

    def unless_used(self) -> MovedDay | None:
        """Moves the day in a transaction; returns None where that is not possible now."""
        try:
            with self.engine.begin() as connection:
                connection.execute(BRIEFLY)
                # Nor is anybody erased meanwhile, whose events would be copied.
                claim_past_days(connection)
                moved = self._moved(connection)
        except OperationalError as error:
            if not is_locked(error):
                raise
            return None
        if moved is not None:
            with self.engine.begin() as connection:
                # The planner knows nothing of a new table.
                connection.execute(text(f"ANALYZE {partition_name(self.day)}"))
        return moved

    def _movable(self, connection: Connection) -> dict[date, bool]:
        return movable_days(connection, as_of=self.as_of, hot_days=self.hot_days)

    def _moved(self, connection: Connection) -> MovedDay | None:
        if (is_thin := self._movable(connection).get(self.day)) is None:
            return None
        name = partition_name(self.day)
        begin = datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)
        words = {
            "day": name,
            "kept": f"{name}_kept",
            "begin": begin.isoformat(),
            "end": (begin + timedelta(days=1)).isoformat(),
            "named": (_TIES if is_thin else _ALL_NAMED).format(day=name),
        }
        size = {"name": f"{SCHEMA}.{name}"}
        before = connection.execute(_SIZE, size).scalar_one()
        _execute_all(connection, _KEEP.format(**words))
        if not unless_locked(partial(self._replace, connection, words), attempts=self.attempts):
            return None
        kept = connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()
        after = connection.execute(_SIZE, size).scalar_one()
        return MovedDay(day=self.day, kept=kept, freed=before - after)

    def _replace(self, connection: Connection, words: dict[str, str]) -> bool:
        """Puts the kept rows in the day's place, unless it may stay since its rows were copied."""
        with connection.begin_nested():
            connection.execute(text("LOCK TABLE runtime_events IN ACCESS EXCLUSIVE MODE"))
            if self.day not in self._movable(connection):
                connection.execute(text(f"DROP TABLE {words['kept']}"))
                return False
            _execute_all(connection, _REPLACE.format(**words))
            connection.execute(_NOTE_MOVED, {"day": self.day, "at": self.as_of})
            return True


def _execute_all(connection: Connection, statements: str) -> None:
    for statement in statements.split(";\n"):
        if statement.strip():
            connection.execute(text(statement))
