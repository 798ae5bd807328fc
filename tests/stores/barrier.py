"""A barrier in the store: it holds whoever writes a table, at a place that a test chooses."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from sqlalchemy import Engine, text

from storage.postgres.engine import connection_string, session_options
from tests.processes.api_process import eventually

# In the store itself: no code of ours knows of it, and a server that was killed finds it again.
# A sequence is read as it is now, in whatever transaction. A held process does not always sleep.
_PUT_UP = """
CREATE SEQUENCE barrier;
CREATE SEQUENCE barrier_arrivals;
CREATE FUNCTION barrier() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('barrier_arrivals');
    WHILE (SELECT last_value FROM barrier) = 1 LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN NULL;
END
$$;
CREATE TRIGGER barrier {when} INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION barrier();
"""
_HELD = "SELECT is_called::int FROM barrier_arrivals"
_OPEN = "SELECT setval('barrier', 2)"
# Waits for the transaction that was held.
_TAKE_DOWN = "DROP FUNCTION barrier CASCADE; DROP SEQUENCE barrier, barrier_arrivals"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Before or after a statement that adds rows to a table; within its transaction, either way."""

    when: str
    table: str

    def __str__(self) -> str:
        return f"{self.when.lower()} the rows of {self.table}"


@dataclass(frozen=True, kw_only=True)
class Barrier:
    """Holds whoever comes to the place, from when it is put up until it is taken down."""

    url: str
    place: Place

    def put_up(self) -> None:
        self._execute(_PUT_UP.format(when=self.place.when, table=self.place.table))

    def holds(self) -> bool:
        return self._execute(_HELD) > 0

    def take_down(self) -> None:
        """Lets the held process go on, if it still lives."""
        self._execute(_OPEN)
        self._execute(_TAKE_DOWN)

    def _execute(self, statement: str) -> int:
        address = connection_string(self.url)
        with psycopg.connect(address, options=session_options(), autocommit=True) as connection:
            row = connection.execute(statement.encode())
            return row.fetchone()[0] if row.description else 0


@contextmanager
def barrier(url: str, place: Place) -> Generator[Barrier]:
    standing = Barrier(url=url, place=place)
    standing.put_up()
    try:
        yield standing
    finally:
        standing.take_down()


_WAITS = text("""
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND objid = CAST(:key AS bigint)::oid AND NOT granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
""")


def await_waiting(engine: Engine, key: int) -> None:
    """Returns once somebody waits for a lock."""

    def waits() -> bool:
        with engine.connect() as connection:
            return connection.execute(_WAITS, {"key": key}).scalar_one() > 0

    eventually(waits)
