"""Tests of a computed day against the query that a data engineer would write over its files."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from benchmarks.days.analyst import BLOCK, METRICS, analysed
from benchmarks.days.rebuild import TREATMENT, stored
from benchmarks.days.sealed_days import write_day
from benchmarks.store import measured_store
from storage.lake.duckdb_engine import DuckDBLimits, open_duckdb
from storage.lake.lake import open_lake
from storage.lake.reader import read_apart
from storage.pipeline.experiments import open_experiments
from storage.pipeline.moments import microseconds
from storage.pipeline.whole_lives import compute_whole_lives


def test_a_day_counts_units_and_outcomes_as_the_analyst_s_query_does() -> None:
    """Nothing is late, crossed or in flight in this day, so that the definitions agree."""
    with measured_store() as store:
        day = stored(store, events=0, experiments=3)
        write_day(day, store.folder / "lake", 20_000)
        wanted: Sequence[Any] = analysed(store.folder / "lake")[1]
        with read_apart(store.engine, open_lake()) as log, open_duckdb(DuckDBLimits()) as engine:
            compute_whole_lives(
                engine,
                log,
                open_experiments(log.connection, only=None),
                as_of=microseconds(day.midnight + timedelta(days=3)),
            )
            cells = [*engine.rows(_CELLS)]
    counted: dict[tuple[int, bool], dict[str, tuple[int, int]]] = {}
    for block, metric, treated, units, outcomes in cells:
        # The guardrail is each experiment's own, and counts the same in all three.
        assert counted.setdefault((block, treated), {}).setdefault(metric, (units, outcomes)) == (
            units,
            outcomes,
        )
    assert counted == {
        (block * BLOCK, commit == TREATMENT): {
            metric: (units, outcomes or 0) for metric, outcomes in zip(METRICS, counts, strict=True)
        }
        for block, commit, units, *counts in wanted
    }
    assert sum(units for _, _, units, *_ in wanted) == 4_000


_CELLS = "".join(
    f"{union}SELECT block, metric, {arm} = 1, sum(n{arm}), sum(x{arm}) FROM new_cells"
    f" WHERE metric IN {tuple(METRICS)} GROUP BY number, block, metric HAVING sum(n{arm}) > 0"
    for union, arm in (("", 1), (" UNION ALL ", 0))
)
