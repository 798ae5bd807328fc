"""The reader: a single state of the log, from readable files and else from PostgreSQL."""

from collections import Counter
from datetime import timedelta

import pytest

from storage.lake.duckdb_engine import DuckDBLimits, open_duckdb
from storage.lake.erasures import rewrite_files
from storage.lake.reader import open_log, read_apart
from storage.lake.removal import delete_unlisted
from storage.pipeline.log_relations import attach_log
from storage.upkeep.forgetting import forget_person
from tests.storage.log.conftest import BEGIN


def test_events_and_erasures_are_of_one_state_of_the_log(day) -> None:
    day.append(day.event("s7", 24 * 60 + 5))
    day.seal()
    day.append(day.event("s7", 31), day.event("s8", 31))
    whole = day.read()

    with read_apart(day.engine, day.lake) as log, open_duckdb(DuckDBLimits()) as engine:
        with log.rows(day.extent(BEGIN, BEGIN + timedelta(days=3))) as rows:
            # Listed, and not read yet.
            with day.engine.begin() as connection:
                forget_person(connection, day.project_id, "s7")
            day.append(day.event("s9", 32))
            day.seal()
            rewrite_files(day.engine, day.lake)
            assert delete_unlisted(day.engine, day.lake) is None
            attach_log(engine, rows)
        assert Counter(engine.rows("SELECT * FROM events")) == whole

    assert not [row for row in day.read() if row[3] == "s7"]


def test_a_transaction_that_sees_several_states_of_the_log_is_refused(day) -> None:
    with (
        day.engine.begin() as connection,
        pytest.raises(ValueError, match="read committed, not repeatable read"),
        open_log(connection, day.lake),
    ):
        pass
