"""The status of sealing: how many hours wait, how much is sealed, and what failed last."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from storage.postgres.engine import SCHEMA
from storage.postgres.rows import value_of

_NOTE = text("""
INSERT INTO sealing_runs (ended_at, error) VALUES (clock_timestamp(), :error)
ON CONFLICT (place) DO UPDATE SET ended_at = excluded.ended_at, error = excluded.error
""")

_STATUS = text(f"""
SELECT (SELECT error FROM sealing_runs) AS error,
    (
        SELECT count(*)
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        CROSS JOIN LATERAL generate_series(
            to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC',
            least(
                to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC'
                    + interval '23 hours',
                date_trunc('hour', clock_timestamp()) - interval '1 hour'
            ),
            interval '1 hour'
        ) AS hour
        WHERE i.inhparent = to_regclass('{SCHEMA}.runtime_events')
          AND pg_relation_size(c.oid) > 0
          AND NOT EXISTS (
              SELECT FROM {SCHEMA}.sealed_hours AS s
              WHERE s.hour = hour.hour AND s.part = 0 AND s.sealed_at IS NOT NULL
          )
    ) AS waiting_hours,
    (SELECT coalesce(sum(bytes), 0)::bigint FROM {SCHEMA}.sealed_hours) AS lake_bytes,
    (SELECT count(*) FROM {SCHEMA}.sealed_hours WHERE fault IS NOT NULL) AS wrong_files,
    (
        SELECT greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(erased_at)), 0))
        FROM {SCHEMA}.erasures
    )::float AS oldest_erasure_seconds
""")


@dataclass(frozen=True, kw_only=True)
class SealingStatus:
    """How sealing fares.

    Attributes:
        waiting_hours: Hours that have ended, of days with events, and are not sealed.
        wrong_files: Listed files that were not as they are listed when they were looked at last.
        oldest_erasure_seconds: Since the oldest erasure of which a file may hold something yet; 0
            where there is none.
    """

    waiting_hours: int
    lake_bytes: int
    wrong_files: int
    oldest_erasure_seconds: float
    error: str | None


def note_sealing(connection: Connection, *, error: str | None) -> None:
    """Keeps how a run of sealing ended."""
    connection.execute(_NOTE, {"error": error})


_ERROR = text("SELECT error FROM sealing_runs")


def sealing_error(connection: Connection) -> str | None:
    """Returns what ended the last run of sealing; None where nothing did, or none was yet."""
    return connection.execute(_ERROR).scalar_one_or_none()


def read_sealing(connection: Connection) -> SealingStatus:
    """Returns how sealing fares."""
    return value_of(SealingStatus, connection.execute(_STATUS).one())
