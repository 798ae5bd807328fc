"""A rehearsal: rows that a transaction wrote and then undid, laid over a separate reading."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, text, tuple_

from storage.postgres.engine import SCHEMA
from storage.schema.tables import commit_ids, commits, deploys, experiments

# Tables that deploys and registrations write and evidence reads.
_TABLES = (deploys, commits, commit_ids, experiments)
# Savepoints have younger ids of their own. So have rows that others stored since, which are laid
# over themselves.
_OF_THIS_TRANSACTION = text("age(xmin) <= age(pg_current_xact_id()::xid)")

Rows = Mapping[Table, Sequence[Mapping[str, Any]]]


def written_rows(connection: Connection) -> Rows:
    """Returns the deploys, lineages and experiments that a transaction has written so far."""
    return {
        table: [
            dict(row)
            for row in connection.execute(select(table).where(_OF_THIS_TRANSACTION)).mappings()
        ]
        for table in _TABLES
    }


def lay_over(separate: Connection, project_id: int, rows: Rows) -> None:
    """Lets a separate reading see such rows beside those of a project that are stored.

    So they are judged without the locks that their transaction took, for which others would wait.

    Args:
        rows: Of a transaction that was undone.
    """
    for table, written in rows.items():
        separate.execute(
            text(
                f"CREATE TEMP TABLE {table.name} ON COMMIT DROP AS"
                f" SELECT * FROM {SCHEMA}.{table.name} WHERE project_id = :project_id"
            ),
            {"project_id": project_id},
        )
        key = tuple_(*table.primary_key)
        names = [column.name for column in table.primary_key]
        keys = [tuple(row[name] for name in names) for row in written]
        separate.execute(delete(table).where(key.in_(keys)))
        if written:
            separate.execute(insert(table), list(written))
