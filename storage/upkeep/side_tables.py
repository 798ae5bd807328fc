"""Side tables: derived tables that are filled aside and swapped in by a single commit."""

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass

from sqlalchemy import JSON, Column, Connection, Engine, Table, TextClause, text

from storage.experiments.experiments import publish_waiting
from storage.pipeline.comparison import WITHIN, Reach, create_reaches
from storage.pipeline.cursors import read_cursors
from storage.pipeline.experiments import open_experiments
from storage.postgres.engine import SCHEMA
from storage.postgres.rows import value_of
from storage.postgres.samples import sample_grown
from storage.schema.clock import claim_rebuild, is_rebuilding
from storage.schema.tables import DERIVED, self_checks, set_aside, verdicts
from storage.upkeep.reading import SETTINGS, create_temporary_tables, primary_key, unprepared


@contextlib.contextmanager
def side_tables(engine: Engine, *, waiting: Callable[[], None]) -> Generator[Connection]:
    """Yields a connection on which the derived tables are empty and its own, for a rebuild.

    Temporary tables come first in every search path: the statements that fill the served tables
    fill these instead. They last from a transaction to the next, and end with the connection,
    however that ends: a rebuild that is killed leaves nothing behind.

    Args:
        waiting: Called where another rebuild must end first.
    """
    with engine.connect() as connection, unprepared(connection):
        # It is closed at the end rather than used again: tables and lock end with the session.
        connection.detach()
        with connection.begin():
            for setting in SETTINGS:
                connection.execute(text(f"SET {setting}"))
        with connection.begin():
            if is_rebuilding(connection):
                waiting()
        with connection.begin():
            claim_rebuild(connection)
            create_temporary_tables(connection, on_commit="PRESERVE ROWS", keys=False)
            connection.execute(_SET_ASIDE_HERE)
        yield connection


# Whoever is set aside is tried anew by a rebuild, and named in the served table at its end alone.
_SET_ASIDE_HERE = text("""
CREATE TEMP TABLE set_aside (LIKE set_aside INCLUDING DEFAULTS, PRIMARY KEY (experiment_id))
ON COMMIT PRESERVE ROWS
""")


def index_side_tables(connection: Connection) -> None:
    """Gives filled side tables the keys, indexes and samples by which a few more rows are added."""
    for table in DERIVED:
        connection.execute(text(f"ALTER TABLE pg_temp.{table.name} ADD {primary_key(table)}"))
        for index in table.indexes:
            index.create(connection)
        connection.execute(text(f"ANALYZE pg_temp.{table.name}"))


# --- The comparison ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A decided verdict that the log does not give again.

    Attributes:
        rebuilt: The contract that the log gives now; None where it gives none.
    """

    experiment_id: str
    served: str
    rebuilt: str | None

    @property
    def in_evidence_alone(self) -> bool:
        """Whether the contract is the same to the byte, and only its evidence differs."""
        return self.served == self.rebuilt


_DIFFERENT = text(f"""
SELECT served.experiment_id, served.contract::text AS served, side.contract::text AS rebuilt
FROM {SCHEMA}.verdicts AS served LEFT JOIN pg_temp.evidence AS side USING (experiment_id)
WHERE served.decided
  AND (served.contract::text, served.evidence::text)
      IS DISTINCT FROM (side.contract::text, side.document::text)
  -- What could not be computed is named as set aside.
  AND served.experiment_id NOT IN (SELECT experiment_id FROM pg_temp.set_aside)
ORDER BY served.experiment_id
""")


def decided_differences(connection: Connection) -> list[Difference]:
    """Returns the decided verdicts whose contract or evidence the side tables give otherwise."""
    return [value_of(Difference, row) for row in connection.execute(_DIFFERENT)]


# --- The swap ------------------------------------------------------------------------------------

# No tick reads a decided experiment any further.
_DECIDED = text(f"""
SELECT v.experiment_id FROM {SCHEMA}.verdicts AS v
WHERE v.decided AND v.experiment_id NOT IN (SELECT experiment_id FROM pg_temp.set_aside)
""")
_READ_BY = ("exposures", "conversions")


def _reaches_of_decided(connection: Connection) -> list[Reach]:
    """Returns how far each decided experiment was read."""
    decided = list(connection.execute(_DECIDED).scalars())
    cursors = read_cursors(connection, decided, schema=f"{SCHEMA}.")
    return [
        Reach(
            experiment=experiment,
            to_block=cursors[experiment.experiment_id, "exposures"],
            read_to=cursors[experiment.experiment_id, "conversions"],
        )
        for experiment in open_experiments(connection, only=decided)
        if all((experiment.experiment_id, stage) in cursors for stage in _READ_BY)
    ]


# Experiments whose own data breaks a stage, or that a stage has not come to: their served rows
# stay as they are, all of them.
_UNFINISHED = text(f"""
CREATE TEMP TABLE unfinished ON COMMIT DROP AS
SELECT experiment_id FROM pg_temp.set_aside
UNION
SELECT s.experiment_id FROM {SCHEMA}.cursors AS s
WHERE s.stage = 'conversions' AND NOT EXISTS (
    SELECT FROM pg_temp.cursors AS c JOIN pg_temp.evidence USING (experiment_id)
    WHERE c.stage = 'conversions' AND c.experiment_id = s.experiment_id
)
""")
_IS_UNFINISHED = "{side}.experiment_id IN (SELECT experiment_id FROM unfinished)"

_NAME_SET_ASIDE = (
    text(f"""
    DELETE FROM {SCHEMA}.set_aside
    WHERE experiment_id NOT IN (SELECT experiment_id FROM unfinished)
    """),
    text(f"""
    INSERT INTO {SCHEMA}.set_aside SELECT * FROM pg_temp.set_aside
    -- A decided one stays as it is served: it would lose what follows its decision.
    WHERE experiment_id NOT IN (SELECT experiment_id FROM {SCHEMA}.verdicts WHERE decided)
    ON CONFLICT (experiment_id) DO UPDATE
    SET stage = excluded.stage, error = excluded.error, last_tried_at = excluded.last_tried_at
    """),
)

_IS_IN_REACH = "served.experiment_id IN (SELECT experiment_id FROM reaches)"
# Rows that say what became of the served verdicts, which no log tells.
_KEPT = {
    "cursors": _IS_IN_REACH,
    "next_looks": _IS_IN_REACH,
    "publication_progress": "true",
    # A decided verdict keeps what it was published from.
    "evidence": f"""
EXISTS (
    SELECT FROM {SCHEMA}.verdicts AS v
    WHERE v.experiment_id = served.experiment_id AND v.decided
)
""",
}


def swap_in(connection: Connection) -> None:
    """Serves the content of the side tables; the verdicts themselves are left alone.

    Of an experiment whose data breaks a stage all served rows stay, and it is named as set aside.
    Only rows that differ are written: readers of the served tables wait for nothing, an interrupted
    swap leaves the old rows, and what stands behind the tables (indexes, rights, statistics)
    stays. Afterwards the side tables are gone, and the tables' names mean the served ones again.

    Args:
        connection: Of `side_tables`, in a transaction that is the only writer of derived tables.
    """
    create_reaches(connection, _reaches_of_decided(connection))
    connection.execute(_UNFINISHED)
    # The condition on outcomes reads the exposures of their units, which go last.
    for name, within in reversed(WITHIN.items()):
        connection.execute(
            text(
                f"DELETE FROM pg_temp.{name} AS r USING reaches AS b"
                f" WHERE r.experiment_id = b.experiment_id"
                f" AND NOT ({within.format(schema='pg_temp')})"
            )
        )
    for table in DERIVED:
        if table is not verdicts:
            connection.execute(_outdated(table))
            added = connection.execute(_missing(table)).rowcount
            sample_grown(connection, f"{SCHEMA}.{table.name}", added)
    for statement in _NAME_SET_ASIDE:
        connection.execute(statement)
    names = ", ".join(f"pg_temp.{table.name}" for table in (*DERIVED, set_aside, self_checks))
    connection.execute(text(f"DROP TABLE {names}"))
    for row in connection.execute(_WITHOUT_VERDICT).all():
        publish_waiting(connection, row.experiment_id, row.project_id)


def _outdated(table: Table) -> TextClause:
    values = [column for column in table.columns if not column.primary_key]
    kept = _KEPT.get(table.name, "false")
    return text(
        f"DELETE FROM {SCHEMA}.{table.name} AS served WHERE NOT ({kept})"
        f" AND NOT ({_IS_UNFINISHED.format(side='served')})"
        f" AND NOT EXISTS (SELECT FROM pg_temp.{table.name} AS side"
        f" WHERE {_keys_equal(table)}"
        f" AND {_row('side', values)} IS NOT DISTINCT FROM {_row('served', values)})"
    )


def _missing(table: Table) -> TextClause:
    names = ", ".join(column.name for column in table.columns)
    return text(
        f"INSERT INTO {SCHEMA}.{table.name} ({names})"
        f" SELECT {names} FROM pg_temp.{table.name} AS side"
        f" WHERE NOT ({_IS_UNFINISHED.format(side='side')})"
        f" AND NOT EXISTS (SELECT FROM {SCHEMA}.{table.name} AS served"
        f" WHERE {_keys_equal(table)})"
    )


def _keys_equal(table: Table) -> str:
    keys = [column.name for column in table.primary_key]
    return " AND ".join(f"side.{key} = served.{key}" for key in keys)


def _row(alias: str, columns: list[Column[object]]) -> str:
    # JSON is compared by its bytes, which are what is served.
    texts = (
        f"{alias}.{column.name}{'::text' if isinstance(column.type, JSON) else ''}"
        for column in columns
    )
    return f"ROW({', '.join(texts)})"


_WITHOUT_VERDICT = text("""
SELECT x.experiment_id, x.project_id
FROM experiments AS x LEFT JOIN verdicts AS v USING (experiment_id)
WHERE v.experiment_id IS NULL
ORDER BY x.experiment_id
""")
