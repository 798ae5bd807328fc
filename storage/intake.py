"""An intake: the rows that a step reads, laid out so that the planner knows how many they are.

PostgreSQL cannot tell how much came within the last minutes: it takes a share of the whole log
for granted, and reads all units that there ever were to join a few of them. So a short intake is
copied and sampled first. A long one would cost its copy and gain nothing: it is read in place.
"""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

_COPIED = timedelta(hours=1)

# Of the events of the log those that any experiment of the step's `scope` may read.
IN_SCOPE = """
AND EXISTS (
    SELECT FROM scope AS s WHERE s.project_id = e.project_id AND s.environment = e.environment
)
"""

# The planner must know of a step that adds many rows at once: it guesses a nested loop over
# them otherwise, and takes a hundred times as long.
_MANY = 1_000
_GROWN = 0.1


def lay_out(
    connection: Connection,
    name: str,
    query: str,
    *,
    of: str = "",
    begins: datetime,
    ends: datetime,
) -> None:
    """Makes `name` a temporary relation of what a query returns.

    Args:
        connection: In a transaction; `drop_intakes` ends what it may still hold.
        name: Of the relation.
        query: Of `scope` and a table of the log.
        of: A further condition, of what is worth a copy: whoever reads the relation asks it too.
        begins: The first time of receipt that the query may ask for.
        ends: The last one.
    """
    if ends - begins > _COPIED:
        connection.execute(text(f"CREATE TEMP VIEW {name} AS {query}"))
        return
    connection.execute(text(f"CREATE TEMP TABLE {name} ON COMMIT DROP AS {query} {of}"))
    connection.execute(text(f"ANALYZE {name}"))


_LAID_OUT = text("""
SELECT relname FROM pg_class
WHERE relnamespace = pg_my_temp_schema() AND relkind = :kind AND relname = ANY(:names)
""")


def drop_intakes(connection: Connection, *names: str) -> None:
    """Drops `scope` and what is laid out under these names, whether it was copied or not."""
    for what, kind in (("VIEW", "v"), ("TABLE", "r")):
        asked = {"kind": kind, "names": ["scope", *names]}
        laid_out = connection.execute(_LAID_OUT, asked).scalars().all()
        if laid_out:
            dropped = ", ".join(f"pg_temp.{name}" for name in laid_out)
            connection.execute(text(f"DROP {what} {dropped}"))


_KNOWN = text("SELECT reltuples FROM pg_class WHERE oid = to_regclass(:table)")


def sample_grown(connection: Connection, table: str, added: int) -> None:
    """Samples a table anew that has grown by much at once, and by much of what it was."""
    if added < _MANY:
        return
    known = connection.execute(_KNOWN, {"table": table}).scalar_one()
    if added >= _GROWN * known:
        connection.execute(text(f"ANALYZE {table}"))


@contextmanager
def by_hash(connection: Connection) -> Generator[None]:
    """Has what is grouped meanwhile be hashed rather than sorted.

    Where rows are grouped by expressions the planner takes each row for a group of its own, and
    sorts a day of events on disk: ten million took 25 seconds, against 11 hashed in parts on disk.
    """
    connection.execute(text("SET LOCAL enable_sort = off"))
    yield
    connection.execute(text("SET LOCAL enable_sort TO DEFAULT"))
