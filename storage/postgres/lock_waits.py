"""Lock waits: whether a transaction waits for another, and for which."""

from sqlalchemy import Connection, text

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
