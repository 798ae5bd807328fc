"""The store's clock, and the lock that makes an instant of it final.

Whatever enters the log takes its time of receipt under a shared lock that it holds until its
commit. A reader waits for the holders that it finds: nothing can commit later with an earlier time
of receipt. Nobody takes the lock alone, so no writer waits for another, nor for a reader.
"""

import time
from datetime import datetime

from sqlalchemy import Connection, text

# Any two numbers that no other application in the same database uses.
LOG_LOCK = 7_246_001
DERIVED_LOCK = 7_246_002


# The time of receipt, `at`. The pipeline of all projects waits for the lock: a transaction takes it
# last, and appends alone follow. The clock is read once the lock is held.
RECEIVED = f"""(
    SELECT clock_timestamp() AS at
    FROM (SELECT pg_advisory_xact_lock_shared({LOG_LOCK}) OFFSET 0) AS locked
) AS received"""
_RECEIPT = text(f"SELECT at FROM {RECEIVED}")


def receipt_time(connection: Connection) -> datetime:
    """Returns the time of receipt of what this transaction writes to the log."""
    return connection.execute(_RECEIPT).scalar_one()


def store_time(connection: Connection) -> datetime:
    """Returns the time by the store's clock, which a simulation moves."""
    return connection.execute(text("SELECT clock_timestamp()")).scalar_one()


_WRITERS = text("""
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND classid = 0 AND objid = :key AND objsubid = 1
""")
_PAUSE = 0.005


def closed_instant(connection: Connection) -> datetime:
    """Returns a time up to which the log is final, waiting for the writers under way."""
    instant = store_time(connection)

    def writers() -> set[str]:
        return {*connection.execute(_WRITERS, {"key": LOG_LOCK}).scalars()}

    earlier = writers()
    while earlier:
        time.sleep(_PAUSE)
        earlier &= writers()
    return instant


def seconds_until(connection: Connection, moment: datetime) -> float:
    """Returns how far off a time is by the store's clock; negative once it has passed."""
    left = text(
        "SELECT extract(epoch FROM CAST(:moment AS timestamptz) - clock_timestamp())::float"
    )
    return connection.execute(left, {"moment": moment}).scalar_one()


def claim_derived_tables(connection: Connection) -> None:
    """Makes this transaction the only writer of derived tables, waiting for its turn.

    The server ends it, within a second, where its process is killed in the middle of a statement.
    """
    connection.execute(text("SET LOCAL client_connection_check_interval = '1s'"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": DERIVED_LOCK})


def try_claim_derived_tables(connection: Connection) -> bool:
    """Makes this transaction the derived tables' only writer; returns at once whether it is."""
    claimed = text("SELECT pg_try_advisory_xact_lock(:key)")
    return connection.execute(claimed, {"key": DERIVED_LOCK}).scalar_one()
