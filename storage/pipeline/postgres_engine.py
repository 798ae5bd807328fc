"""PostgreSQL as an engine of the text: temporary tables inside the caller's transaction."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from sqlalchemy import Connection, text

from storage.pipeline.engine import Columns
from storage.pipeline.steps import COMPUTED_ONCE, EVENT_KEY, IN_SAMPLE, SEEN, Step
from storage.sample import IN_SAMPLE as UNIT_IN_SAMPLE

_TYPES = {
    "int": "integer",
    "bigint": "bigint",
    "text": "text",
    "json": "jsonb",
    "experiment": "text",
}

# What comes next to nothing to copy: of an hour's rows a copy is sampled, so that the planner knows
# how many they are. It cannot tell how much of the log came within the last minutes, takes a share
# of all of it for granted, and reads all units that there ever were to join a few of them. A longer
# stretch would cost its copy and gain nothing: it is read in place.
COPIED = 3_600_000_000


def epoch_microseconds(column: str) -> str:
    """Returns SQL for a time as whole microseconds since the epoch.

    `date_part` is a double: with the product it is within 0.49 of a microsecond until the year
    2106, which the cast rounds away. `extract` would be exact, and takes six times as long.
    """
    return f"(date_part('epoch', {column}) * 1000000)::bigint"


def moment(column: str) -> str:
    """Returns SQL for the time of whole microseconds since the epoch."""
    return f"timestamptz 'epoch' + {column} * interval '1 microsecond'"


# The key of an event of the log as it is stored, `e`.
STORED_EVENT_KEY = EVENT_KEY.replace("e.occurred", epoch_microseconds("e.occurred_at"))


class PostgresEngine:
    """Runs the text on the connection's own rows; everything that it makes is temporary.

    Args:
        connection: In a transaction.
        copies: Whether the stretch of the log that is read is short enough to be copied.
    """

    def __init__(self, connection: Connection, *, copies: bool) -> None:
        self.connection = connection
        self._copies = copies
        self._made: dict[str, str] = {}

    def register(self, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> None:
        """Makes a small input of rows."""
        members = ", ".join(f"{column} {_TYPES[kind]}" for column, kind in columns.items())
        self._make(name, "TABLE", f"CREATE TEMP TABLE {name} ({members}) ON COMMIT DROP")
        # Whoever makes them may read the store by this connection.
        made = list(rows)
        # The proxy knows its cursor also where the connection has left its pool, as for a rebuild.
        cursor = cast("psycopg.Cursor[Any]", self.connection.connection.cursor())
        with cursor.copy(f"COPY {name} FROM STDIN".encode()) as copying:
            for row in made:
                copying.write_row(row)
        self._analyze(name)

    def define(self, name: str, sql: str) -> None:
        """Gives a relation's name to a statement: a copy of its rows, or the statement itself."""
        if self._copies:
            self._make(name, "TABLE", f"CREATE TEMP TABLE {name} ON COMMIT DROP AS {sql}")
            self._analyze(name)
        else:
            # Its columns are worked out once for each row, rather than wherever they are named, and
            # once more for each experiment: a set of flags takes long to compare.
            self.view(name, f"{sql} OFFSET 0")

    def view(self, name: str, sql: str) -> None:
        """Gives a relation's name to a statement."""
        self._make(name, "VIEW", f"CREATE TEMP VIEW {name} AS {sql}")

    def run(self, step: Step) -> None:
        """Materializes a step."""
        # The planner would merge the subquery and work `kind` out six times a row, for two thirds
        # more time.
        sql = step.sql.replace(IN_SAMPLE, UNIT_IN_SAMPLE).replace(COMPUTED_ONCE, "OFFSET 0")
        statement = f"CREATE TEMP TABLE {step.name} ON COMMIT DROP AS {sql}"
        if step is SEEN:
            with grouped_by_hash(self.connection):
                self._make(step.name, "TABLE", statement)
        else:
            self._make(step.name, "TABLE", statement)
        self._analyze(step.name)

    def rows(self, sql: str) -> Iterable[Sequence[Any]]:
        """Returns the rows of a statement."""
        return self.connection.exec_driver_sql(sql).all()

    def experiment_key(self, number: int, experiment_id: str) -> object:  # noqa: ARG002
        """Returns what the derived relations know an experiment by: its id."""
        return experiment_id

    def count(self, name: str) -> int:
        """Returns how many rows a relation has."""
        return self.connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()

    def close(self) -> None:
        """Drops everything that was made; where an error ends the transaction, that does it."""
        for kind in ("VIEW", "TABLE"):
            names = [name for name, made in self._made.items() if made == kind]
            if names:
                dropped = ", ".join(f"pg_temp.{name}" for name in names)
                self.connection.execute(text(f"DROP {kind} {dropped} CASCADE"))
        self._made.clear()

    def _make(self, name: str, kind: str, statement: str) -> None:
        if name in self._made:
            self.connection.execute(text(f"DROP {self._made.pop(name)} pg_temp.{name}"))
        self.connection.exec_driver_sql(statement.replace("%", "%%"))
        self._made[name] = kind

    def _analyze(self, name: str) -> None:
        self.connection.execute(text(f"ANALYZE pg_temp.{name}"))


@contextmanager
def grouped_by_hash(connection: Connection) -> Generator[None]:
    """Has what is grouped meanwhile be hashed rather than sorted.

    Where rows are grouped by expressions the planner takes each row for a group of its own, and
    sorts a day of events on disk: ten million took 25 seconds, against 11 hashed in parts on disk.
    """
    connection.execute(text("SET LOCAL enable_sort = off"))
    yield
    connection.execute(text("SET LOCAL enable_sort TO DEFAULT"))
