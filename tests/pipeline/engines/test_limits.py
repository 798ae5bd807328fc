"""Limits of a computation in DuckDB."""

import duckdb
import pytest

from storage.lake.duckdb_engine import DuckDBLimits, open_duckdb
from storage.pipeline.steps import Step


def test_a_step_that_takes_longer_than_it_may_is_ended() -> None:
    endless = Step(
        name="endless",
        sql="SELECT sum(hash(a.range, b.range)) FROM range(10000000) AS a, range(10000000) AS b",
    )
    with (
        open_duckdb(DuckDBLimits(), seconds=0.1) as engine,
        pytest.raises(duckdb.InterruptException),
    ):
        engine.run(endless)
