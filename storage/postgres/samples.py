"""Samples: the planner's knowledge of tables that have grown by much at once."""

from sqlalchemy import Connection, text

# The planner must know of a step that adds many rows at once: it guesses a nested loop over
# them otherwise, and takes a hundred times as long.
_MANY = 1_000
_GROWN = 0.1

_KNOWN = text("SELECT reltuples FROM pg_class WHERE oid = to_regclass(:table)")


def sample_grown(connection: Connection, table: str, added: int) -> None:
    """Samples a table anew that has grown by many rows at once, and by much of its size."""
    if added < _MANY:
        return
    known = connection.execute(_KNOWN, {"table": table}).scalar_one()
    if added >= _GROWN * known:
        connection.execute(text(f"ANALYZE {table}"))
