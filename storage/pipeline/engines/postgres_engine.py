"""PostgreSQL as an engine of the text: within the caller's transaction, on its own rows."""

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import psycopg
from sqlalchemy import Connection, CursorResult, text

from storage.pipeline.engines.engine import Columns
from storage.pipeline.steps import CANDIDATES, CLOCKS, EVENT_KEY, SEEN, Dialect, Step
from storage.schema.encoding import epoch_microseconds

POSTGRESQL = Dialect(
    digest=("encode(sha256(convert_to(", ", 'UTF8')), 'hex')"),
    row_digest="('x' || left(md5({words}), 10))::bit(40)::bigint",
    flag="(e.flags ->> s.flag)",
    event_property="({event}.properties ->> {name})",
    # The planner would merge the subquery and work `kind` out six times a row, for two thirds
    # more time.
    computed_once="OFFSET 0",
)
_TYPES = {
    "int": "integer",
    "bigint": "bigint",
    "text": "text",
    "bool": "boolean",
    "json": "jsonb",
    "experiment": "text",
}

# An input of so few rows travels with each statement that reads it, rather than in a table.
_FEW_INPUTS = 200

# Up to so many rows of the log, times experiments, nothing is materialized in a table. A temporary
# table costs 1.2 ms to make, 0.4 ms to sample and 0.3 ms to drop, whatever it holds: of 23 steps
# and inputs that was half of a minute's CPU. More rows need the samples: without them the planner
# may compare each row of a step with each of another.
AT_ONCE = 5_000

# Steps that others are joined to by unit: even of few rows they are tables. Of a clause with many
# conditions the planner expects a single row, and would look every unit up for every other; of
# a table that it has not sampled it expects ten pages.
_COUNTED = (CLOCKS, SEEN, CANDIDATES)

_READ = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")


# The key of an event of the log as it is stored, `e`.
STORED_EVENT_KEY = EVENT_KEY.replace("e.stamped", epoch_microseconds("e.occurred_at"))


@dataclass(frozen=True, kw_only=True)
class _Clause:
    """A relation that is no table: it is computed within each statement that reads it."""

    sql: str
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    materialized: bool = False

    def under(self, name: str) -> str:
        """Returns it as a clause of WITH."""
        return f"{name} AS {'' if self.materialized else 'NOT '}MATERIALIZED ({self.sql})"


class PostgresEngine:
    """Runs the text on the connection's own rows.

    Relations are clauses of the statements that read them. Only what many rows go through is
    materialized, in temporary tables that the planner has sampled.
    """

    dialect = POSTGRESQL

    def __init__(self, connection: Connection, *, experiments: int, at_once: int = AT_ONCE) -> None:
        self.connection = connection
        self._experiments = experiments
        self._at_once = at_once
        self._copied: dict[str, int] = {}
        self._tables: set[str] = set()
        self._clauses: dict[str, _Clause] = {}
        self._few_inputs: dict[str, tuple[Columns, Sequence[Sequence[Any]]]] = {}

    @property
    def few(self) -> bool:
        """Whether so few rows are read that no step is a table."""
        return sum(self._copied.values()) * self._experiments <= self._at_once

    def register(self, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> None:
        """Makes a small input of rows."""
        # The rows may be read from the store by this same connection.
        made = list(rows)
        if len(made) > _FEW_INPUTS or not self.few:
            self._copy_in(name, columns, made)
            return
        values = zip(*made, strict=True) if made else ((),) * len(columns)
        members = ", ".join(f"{column}::{_TYPES[kind]}" for column, kind in columns.items())
        # A list of JSON's objects is cast from text, each by itself.
        arrays = ", ".join(
            f"%({name}_{column})s::{'text' if kind == 'json' else _TYPES[kind]}[]"
            for column, kind in columns.items()
        )
        self._define(
            name,
            _Clause(
                sql=f"SELECT {members} FROM unnest({arrays}) AS listed ({', '.join(columns)})",
                parameters={
                    f"{name}_{column}": list(listed)
                    for column, listed in zip(columns, values, strict=True)
                },
            ),
        )
        self._few_inputs[name] = columns, made

    def define(self, name: str, sql: str) -> None:
        """Gives a relation's name to a copy of a statement's rows.

        So the planner knows how many they are. It cannot tell how much of the log came within the
        last minutes, takes a share of all of it for granted, and reads all units that there ever
        were to join a few of them.
        """
        self._copied[name] = self._materialize(name, sql)
        if not self.few:
            self._copy_inputs()

    def view(self, name: str, sql: str) -> None:
        """Gives a relation's name to a statement."""
        self._define(name, _Clause(sql=_escaped(sql)))

    def run(self, step: Step) -> None:
        """Makes a step's rows, at the latest when they are read."""
        sql = POSTGRESQL.written(step.sql)
        if self.few and step not in _COUNTED:
            self._define(step.name, _Clause(sql=_escaped(sql), materialized=True))
        else:
            with planned_without(self.connection, "sort" if step is SEEN else "memoize"):
                self._materialize(step.name, sql)

    def rows(self, sql: str) -> Iterable[Sequence[Any]]:
        """Returns the rows of a statement."""
        return self._execute("", _escaped(sql)).all()

    def add(self, statements: Mapping[str, str]) -> Mapping[str, int]:
        """Adds rows to the store's tables; returns by table how many it added or changed."""
        if not self.few:
            return {
                table: self._execute("", _escaped(sql)).rowcount
                for table, sql in statements.items()
            }
        added = {
            f"added_{table}": f"{_escaped(sql)} RETURNING 1" for table, sql in statements.items()
        }
        counts = ", ".join(f"(SELECT count(*) FROM {name})" for name in added)
        row = self._execute("", f"SELECT {counts}", added).one()
        return dict(zip(statements, row, strict=True))

    def each_part(self) -> Iterator[int]:
        """Yields once: all units are a single part."""
        yield 0

    def experiment_key(self, number: int, experiment_id: str) -> object:  # noqa: ARG002
        """Returns an experiment's key in the derived relations: its id."""
        return experiment_id

    def count(self, name: str) -> int:
        """Returns how many rows a relation has."""
        return self._execute("", f"SELECT count(*) FROM {name}").scalar_one()

    def close(self) -> None:
        """Drops everything that was made; where an error ends the transaction, that does it."""
        if self._tables:
            dropped = ", ".join(f"pg_temp.{name}" for name in self._tables)
            self.connection.exec_driver_sql(f"DROP TABLE {dropped}")
        self._tables.clear()
        self._clauses.clear()
        self._few_inputs.clear()
        self._copied.clear()

    def _define(self, name: str, clause: _Clause) -> None:
        self._forget(name)
        self._clauses[name] = clause

    def _forget(self, name: str) -> None:
        self._clauses.pop(name, None)
        self._few_inputs.pop(name, None)
        if name in self._tables:
            self.connection.exec_driver_sql(f"DROP TABLE pg_temp.{name}")
            self._tables.remove(name)

    def _materialize(self, name: str, sql: str) -> int:
        """Makes a table of a statement's rows, and returns how many they are."""
        self._forget(name)
        made = self._execute(f"CREATE TEMP TABLE {name} ON COMMIT DROP AS ", _escaped(sql))
        self._tables.add(name)
        count = made.rowcount
        if count * self._experiments > self._at_once:
            self._analyze(name)
        return count

    def _copy_in(self, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> None:
        self._forget(name)
        members = ", ".join(f"{column} {_TYPES[kind]}" for column, kind in columns.items())
        self.connection.exec_driver_sql(f"CREATE TEMP TABLE {name} ({members}) ON COMMIT DROP")
        self._tables.add(name)
        # The proxy knows its cursor also where the connection has left its pool, as for a rebuild.
        cursor = cast("psycopg.Cursor[Any]", self.connection.connection.cursor())
        with cursor.copy(f"COPY {name} FROM STDIN".encode()) as copying:
            for row in rows:
                copying.write_row(row)
        self._analyze(name)

    def _copy_inputs(self) -> None:
        """Makes tables of the inputs that travel with statements.

        Of those the planner knows no values. It would expect an event in 200 to be of a project
        that any of 200 experiments reads, and compare each with every row of another input.
        """
        for name, (columns, rows) in list(self._few_inputs.items()):
            self._copy_in(name, columns, rows)

    def _analyze(self, name: str) -> None:
        self.connection.exec_driver_sql(f"ANALYZE pg_temp.{name}")

    def _execute(
        self, verb: str, sql: str, added: Mapping[str, str] | None = None
    ) -> CursorResult[Any]:
        """Executes a statement after the clauses that it and its additions read."""
        additions = dict(added or {})
        read = self._read_by([sql, *additions.values()])
        clauses = [clause.under(name) for name, clause in self._clauses.items() if name in read]
        clauses += [f"{name} AS ({addition})" for name, addition in additions.items()]
        parameters = {
            key: value for name in read for key, value in self._clauses[name].parameters.items()
        }
        begins = f"WITH {', '.join(clauses)} " if clauses else ""
        return self.connection.exec_driver_sql(f"{verb}{begins}{sql}", parameters)

    def _read_by(self, statements: Iterable[str]) -> set[str]:
        """Returns the clauses that statements read, directly or by others."""
        read: set[str] = set()
        unread = list(statements)
        while unread:
            named = set(_READ.findall(unread.pop())) & self._clauses.keys()
            unread += [self._clauses[name].sql for name in named - read]
            read |= named
        return read


def _escaped(sql: str) -> str:
    """Returns a statement without parameters as the driver takes a statement with parameters."""
    return sql.replace("%", "%%")


@contextmanager
def planned_without(connection: Connection, way: str) -> Generator[None]:
    """Keeps the planner from a way to execute until the context ends.

    `sort`: Where rows are grouped by expressions it takes each row for a group of its own, and
    sorts a day of events on disk: ten million took 25 seconds, against 11 hashed in parts on disk.
    `memoize`: It would cache the units of an experiment for its next metric, and the cache holds
    few of them: a million took a third longer.
    """
    connection.execute(text(f"SET LOCAL enable_{way} = off"))
    yield
    connection.execute(text(f"SET LOCAL enable_{way} TO DEFAULT"))
