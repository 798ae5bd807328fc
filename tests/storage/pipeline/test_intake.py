"""What a step says to the planner of the rows that it reads."""

from sqlalchemy import Connection, text

from storage.pipeline.engines.postgres_engine import planned_without

_BY_EXPRESSION = "SELECT n / 3, count(*) FROM many GROUP BY n / 3"


def plan(connection: Connection) -> str:
    return "\n".join(connection.execute(text(f"EXPLAIN {_BY_EXPRESSION}")).scalars())


def test_what_is_planned_without_sorting_leaves_the_planner_as_it_was(store) -> None:
    with store.engine.begin() as connection:
        made = "CREATE TEMP TABLE many AS SELECT n FROM generate_series(1, 50000) AS n"
        # As a day of events is to what stays in memory.
        for statement in (made, "ANALYZE many", "SET LOCAL work_mem = '64kB'"):
            connection.execute(text(statement))
        before = plan(connection)
        with planned_without(connection, "sort"):
            assert plan(connection).startswith("HashAggregate")
        assert plan(connection) == before
        assert before.startswith("GroupAggregate")
