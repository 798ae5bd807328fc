"""Derived tables without a row, as no command of ours would leave them: what a lost store holds."""

from sqlalchemy import Connection, text

from storage.schema.annex_tables import DERIVED
from storage.schema.tables import experiments
from storage.upkeep.rebuild import publish_waiting


def empty_derived_tables(connection: Connection) -> None:
    """Empties everything that is derived from the log, and serves what was served at first."""
    connection.execute(text("SET LOCAL session_replication_role = replica"))
    connection.execute(text(f"TRUNCATE {', '.join(table.name for table in DERIVED)}"))
    connection.execute(text("SET LOCAL session_replication_role = origin"))
    for row in connection.execute(experiments.select()).all():
        publish_waiting(connection, row.experiment_id, row.project_id)
