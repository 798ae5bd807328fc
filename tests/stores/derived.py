"""The rows of the derived tables, to the byte, and how those of two runs differ."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Cast, Connection, Engine, Table, Text, cast, func, select, text

from storage.schema.annex_tables import DERIVED

# When a verdict was published and when the next look can come: both move with the clock.
_UNSTABLE = {"published_at", "next_look_at"}
# The tables that say how far the log was read, which moves with the clock.
HOW_FAR = {"cursors", "next_looks", "publication_progress"}

Derived = Mapping[str, Sequence[str]]


def derived(connection: Connection) -> Derived:
    """Returns each derived table's rows, in order: each a text made of its columns' texts.

    How far the log was read is left out: it moves with the clock too. On a separate reading these
    are its own tables.
    """
    return {
        table.name: list(connection.execute(select(row).order_by(row)).scalars())
        for table in DERIVED
        if table.name not in HOW_FAR
        for row in [_row(table)]
    }


def derived_of(engine: Engine) -> Derived:
    """Returns what the served tables hold now."""
    with engine.connect() as connection:
        return derived(connection)


def served_of(engine: Engine) -> Sequence[tuple[str, ...]]:
    """Returns each experiment with its verdict and evidence as they are served, to the byte."""
    query = "SELECT experiment_id, contract::text, evidence::text FROM verdicts ORDER BY 1"
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def between(first: Derived, other: Derived) -> Mapping[str, Sequence[str]]:
    """Returns the rows that only either of two runs made, by table; none where they agree."""
    apart = {name: sorted({*rows} ^ {*other[name]}) for name, rows in first.items()}
    return {name: rows for name, rows in apart.items() if rows}


def _row(table: Table) -> Cast[str]:
    columns = [cast(first, Text) for first in table.c if first.name not in _UNSTABLE]
    return cast(func.json_build_array(*columns), Text)
