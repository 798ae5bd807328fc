"""A probe of whether the store can be written, which a store that only answers reads does not pass.

A commit alone does not show that a disk is full: it finds room in the files that PostgreSQL keeps
for its log, and in pages that exist. So a probe also writes half a megabyte of temporary file
beside the tables, which the log records nothing of, and which is gone with the statement.
"""

from sqlalchemy import Connection, text

# All workers together write so often at most, however often they are asked.
_FRESH_SECONDS = 3

_IS_FRESH = text(f"""
SELECT EXISTS (
    SELECT FROM write_probe
    WHERE abs(extract(epoch FROM clock_timestamp() - written_at)) < {_FRESH_SECONDS}
)
""")

# The rows of the function are kept in memory up to `work_mem`, and then in a temporary file.
_SPILL = "SELECT count(*) FROM generate_series(1, 30000)"
_SETTINGS = ("SET LOCAL work_mem = '64kB'", "SET LOCAL temp_tablespaces = ''")

_WRITE = """
INSERT INTO write_probe AS p (place, written_at) VALUES (1, clock_timestamp())
ON CONFLICT (place) DO UPDATE SET written_at = excluded.written_at
"""


def probe_writing(connection: Connection) -> None:
    """Writes to the store, unless that succeeded a moment ago; the caller commits.

    Raises:
        DBAPIError: It cannot be written.
    """
    if connection.execute(_IS_FRESH).scalar_one():
        return
    for statement in (*_SETTINGS, _SPILL, _WRITE):
        connection.execute(text(statement))
