"""The log as PostgreSQL holds it, copied to files that DuckDB reads: a log source."""

from pathlib import Path
from typing import Any, cast

import duckdb
import psycopg
from sqlalchemy import Connection

from storage.pipeline.log_source import EVENT_COLUMNS, REVENUE_COLUMNS, Extent
from storage.pipeline.moments import moment_of
from storage.pipeline.postgres_engine import epoch_microseconds

_TIMES = (
    f"{epoch_microseconds('e.occurred_at')} AS occurred,"
    f" {epoch_microseconds('e.received_at')} AS received"
)

_EVENTS = f"""
SELECT e.project_id, e.environment, e.event, e.session_id, {_TIMES}, e.commit_sha, e.route,
    encode(e.pseudonym, 'hex') AS pseudonym, e.trusted, e.signed, e.event_id, e.value, e.flags
FROM runtime_events AS e
WHERE e.received_at BETWEEN timestamptz '{{named_from}}' AND timestamptz '{{ends}}'
  AND (e.received_at >= timestamptz '{{begins}}' OR e.pseudonym IS NOT NULL)
  AND (e.project_id, e.environment) IN ({{environments}})
"""

_REVENUE = f"""
SELECT e.project_id, e.environment, e.event, e.idempotency_key, e.session_id, {_TIMES},
    encode(e.pseudonym, 'hex') AS pseudonym, e.amount_value AS amount,
    e.amount_currency AS currency
FROM revenue_events AS e
WHERE e.received_at BETWEEN timestamptz '{{begins}}' AND timestamptz '{{ends}}'
  AND e.project_id IN ({{projects}})
"""


class StoredLog:
    """Copies the rows that the caller's transaction sees, so that both read one state of the log.

    Args:
        connection: To the store, in a transaction.
        folder: Where the copies are put.
    """

    def __init__(self, connection: Connection, *, folder: Path) -> None:
        self._connection = connection
        self._folder = folder

    def event_rows(self, database: duckdb.DuckDBPyConnection, extent: Extent) -> str:
        """Returns a SELECT of `EVENT_COLUMNS`, without semicolon, that runs on this database."""
        places = ", ".join(
            f"({project_id}, {_literal(environment)})"
            for project_id, environment in sorted(extent.environments)
        )
        return self._copied(database, "events", _EVENTS, EVENT_COLUMNS, extent, places=places)

    def revenue_rows(self, database: duckdb.DuckDBPyConnection, extent: Extent) -> str:
        """Returns a SELECT of `REVENUE_COLUMNS`, without semicolon, that runs on this database."""
        places = ", ".join(sorted({str(project_id) for project_id, _ in extent.environments}))
        return self._copied(database, "revenue", _REVENUE, REVENUE_COLUMNS, extent, places=places)

    def _copied(
        self,
        database: duckdb.DuckDBPyConnection,
        name: str,
        sql: str,
        columns: dict[str, str],
        extent: Extent,
        *,
        places: str,
    ) -> str:
        """Copies rows into a Parquet file, which takes a tenth of the text's place."""
        asked = sql.format(
            named_from=moment_of(extent.named_from).isoformat(),
            begins=moment_of(extent.received_from).isoformat(),
            ends=moment_of(extent.received_to).isoformat(),
            environments=places,
            projects=places,
        )
        lines = self._folder / f"{name}.csv"
        parquet = self._folder / f"{name}.parquet"
        # The proxy knows its cursor also where the connection has left its pool.
        cursor = cast("psycopg.Cursor[Any]", self._connection.connection.cursor())
        statement = f"COPY ({asked}) TO STDOUT (FORMAT csv)"
        with lines.open("wb") as file, cursor.copy(statement.encode()) as rows:
            for row in rows:
                file.write(row)
        database.execute(
            f"COPY (SELECT * FROM read_csv({_literal(str(lines))}, columns = {columns!r},"
            " header = false, auto_detect = false, delim = ',', quote = '\"', escape = '\"',"
            " nullstr = '', allow_quoted_nulls = false, parallel = false))"
            f" TO {_literal(str(parquet))} (FORMAT parquet)"
        )
        lines.unlink()
        return f"SELECT * FROM read_parquet({_literal(str(parquet))})"


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
