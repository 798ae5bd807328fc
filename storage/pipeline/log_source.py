"""Log source: where a DuckDB computation finds the rows of the log that it reads.

`storage/log` gives one that reads sealed Parquet files and the unsealed rest; `storage/pipeline`
has one that copies all rows from PostgreSQL, for stores without sealed hours.
"""

from dataclasses import dataclass
from typing import Protocol

import duckdb

# The columns that `event_rows` selects, in this order: times in microseconds since the epoch,
# `value` in whole millionths, `pseudonym` as lower-case hex, `flags` as JSON text. All but the
# project, environment, event, session, the two times, `trusted` and `signed` may be null.
EVENT_COLUMNS = {
    "project_id": "INTEGER",
    "environment": "VARCHAR",
    "event": "VARCHAR",
    "session_id": "VARCHAR",
    "occurred": "BIGINT",
    "received": "BIGINT",
    "commit_sha": "VARCHAR",
    "route": "VARCHAR",
    "pseudonym": "VARCHAR",
    "trusted": "BOOLEAN",
    "signed": "BOOLEAN",
    "event_id": "VARCHAR",
    "value": "BIGINT",
    "flags": "VARCHAR",
}

# The columns that `revenue_rows` selects: `amount` in minor units. Environment, session, amount and
# currency may be null.
REVENUE_COLUMNS = {
    "project_id": "INTEGER",
    "environment": "VARCHAR",
    "event": "VARCHAR",
    "idempotency_key": "VARCHAR",
    "session_id": "VARCHAR",
    "occurred": "BIGINT",
    "received": "BIGINT",
    "pseudonym": "VARCHAR",
    "amount": "BIGINT",
    "currency": "VARCHAR",
}


@dataclass(frozen=True, kw_only=True)
class Extent:
    """The part of the log that a computation reads; a source may return more of the log than this.

    Attributes:
        named_from: From when on rows are read that have a pseudonym: a session may have named its
            user weeks before.
        received_from: From when on all rows are read, in microseconds since the epoch.
        received_to: The last one, itself included.
        environments: The (project_id, environment) pairs; revenue is asked for by project.
    """

    named_from: int
    received_from: int
    received_to: int
    environments: frozenset[tuple[int, str]]


class LogSource(Protocol):
    """Gives DuckDB the log's rows as SELECT statements, which it may run any number of times."""

    def event_rows(self, database: duckdb.DuckDBPyConnection, extent: Extent) -> str:
        """Returns a SELECT of `EVENT_COLUMNS`, without semicolon, that runs on this database."""
        ...

    def revenue_rows(self, database: duckdb.DuckDBPyConnection, extent: Extent) -> str:
        """Returns a SELECT of `REVENUE_COLUMNS`, without semicolon, that runs on this database."""
        ...
