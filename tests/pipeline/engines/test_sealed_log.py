"""DuckDB reads sealed files and what is not sealed yet as it reads PostgreSQL's own rows."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from storage.log.lake import FolderLake
from storage.log.reader import read_apart
from storage.log.sealing import Sealer
from storage.pipeline.engines.duckdb_engine import DuckDBLimits, open_duckdb
from storage.pipeline.experiments import open_experiments
from storage.pipeline.moments import microseconds
from storage.pipeline.whole_lives import compute_whole_lives
from tests.conftest import Store
from tests.pipeline.engines.rows import Rows, computed_rows
from tests.pipeline.engines.test_engines import END, built
from tests.repetition import also_nightly


def computed(store: Store, folder: Path, lake: FolderLake) -> dict[str, Rows]:
    """Returns the rows by experiment."""
    with (
        read_apart(store.engine, lake) as log,
        open_duckdb(DuckDBLimits(memory_mib=256, folder=folder)) as engine,
    ):
        experiments = open_experiments(log.connection, only=None)
        lives = compute_whole_lives(engine, log, experiments, as_of=microseconds(END))
        return computed_rows(lives)


@pytest.mark.parametrize("unsealed", also_nightly(["some hours"], ["nothing", "everything"]))
def test_cells_are_the_same_from_files_and_from_the_log(
    store: Store, tmp_path: Path, unsealed: str
) -> None:
    built(store, range(12))
    lake = FolderLake(tmp_path / "lake")
    expected = computed(store, tmp_path, lake)
    if unsealed != "everything":
        run = Sealer(engine=store.engine, lake=lake).seal()
        assert run is not None
        assert run.rows > 0
    gone = {
        "nothing": "TRUNCATE runtime_events",
        # As though the last hours had not been sealed yet.
        "some hours": "DELETE FROM sealed_hours WHERE extract(hour FROM hour) IN (21, 23, 1)",
        "everything": "SELECT 1",
    }[unsealed]
    with store.engine.begin() as connection:
        connection.execute(text(gone))

    found: dict[str, Any] = computed(store, tmp_path, lake)

    assert any(rows["cells"] for rows in expected.values())
    assert found == expected
