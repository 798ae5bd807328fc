"""An intake: the rows that a step reads, laid out so that the planner knows how many they are.

PostgreSQL cannot tell how much came within the last minutes: it takes a share of the whole log
for granted, and reads all units that there ever were to join a few of them. So a short intake is
copied and sampled first. A long one would cost its copy and gain nothing: it is read in place.
"""

from datetime import datetime, timedelta

from sqlalchemy import Connection, text

_COPIED = timedelta(hours=1)

# The planner must know of a step that adds many rows at once: it guesses a nested loop over
# them otherwise, and takes a hundred times as long.
_MANY = 1_000
_GROWN = 0.1


def lay_out(
    connection: Connection, name: str, query: str, *, begins: datetime, ends: datetime
) -> None:
    """Makes `name` a temporary relation of what a query returns.

    Args:
        connection: In a transaction; `drop_intakes` ends what it may still hold.
        name: Of the relation.
        query: Of `scope` and a table of the log.
        begins: The first time of receipt that the query may ask for.
        ends: The last one.
    """
    if ends - begins > _COPIED:
        connection.execute(text(f"CREATE TEMP VIEW {name} AS {query}"))
        return
    connection.execute(text(f"CREATE TEMP TABLE {name} ON COMMIT DROP AS {query}"))
    connection.execute(text(f"ANALYZE {name}"))


def drop_intakes(connection: Connection, *names: str) -> None:
    """Drops `scope`, whatever views read of it, and the tables of these names."""
    connection.execute(text("DROP TABLE pg_temp.scope CASCADE"))
    for name in names:
        connection.execute(text(f"DROP TABLE IF EXISTS pg_temp.{name}"))


_KNOWN = text("SELECT reltuples FROM pg_class WHERE oid = to_regclass(:table)")


def sample_grown(connection: Connection, table: str, added: int) -> None:
    """Samples a table anew that has grown by much at once, and by much of what it was."""
    if added < _MANY:
        return
    known = connection.execute(_KNOWN, {"table": table}).scalar_one()
    if added >= _GROWN * known:
        connection.execute(text(f"ANALYZE {table}"))
