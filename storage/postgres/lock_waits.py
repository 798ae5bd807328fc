"""Lock waits: whether a transaction waits for another, and for which; and who rather comes back."""

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

ResultT = TypeVar("ResultT")

# For a lock for which whoever appends or reads would wait behind us for as long as we wait.
BRIEFLY = text("SET LOCAL lock_timeout = '100ms'")


def is_locked(error: OperationalError) -> bool:
    """Tells whether somebody holds a lock for longer than we wait."""
    return getattr(error.orig, "sqlstate", None) == "55P03"


def unless_locked(work: Callable[[], ResultT], *, attempts: int) -> ResultT:
    """Returns what work returns, tried four times a second while somebody holds its lock.

    Raises:
        OperationalError: Somebody holds it at the last attempt, or there is another error.
    """
    while True:
        attempts -= 1
        try:
            return work()
        except OperationalError as error:
            if not attempts or not is_locked(error):
                raise
        time.sleep(0.25)


_NAME = text("SELECT set_config('application_name', :name, true), pg_backend_pid() AS pid")

_BLOCKER = text("""
SELECT other.application_name AS name, other.pid
FROM unnest(pg_blocking_pids(:pid)) AS blocker (pid)
JOIN pg_stat_activity AS other USING (pid)
ORDER BY other.xact_start
LIMIT 1
""")


def name_transaction(connection: Connection, name: str) -> int:
    """Names a transaction for those who wait for it, and returns its backend's process id."""
    return connection.execute(_NAME, {"name": name}).one().pid


def blocking_transaction(connection: Connection, pid: int) -> str | None:
    """Returns the name of the transaction that a backend waits for, None where it waits for none.

    A transaction without a name is named by its process id.
    """
    row = connection.execute(_BLOCKER, {"pid": pid}).one_or_none()
    if row is None:
        return None
    return row.name or f"PostgreSQL's process {row.pid}"
