"""DuckDB reads sealed files and what is not sealed yet as it reads PostgreSQL's own rows."""

from pathlib import Path

import pytest
from sqlalchemy import text

from storage.lake.lake import FolderLake
from storage.lake.sealing import Sealer
from tests.conftest import Store
from tests.pipeline.engines.rows import recomputed_rows
from tests.pipeline.engines.test_engines import END, SETTINGS, built
from tests.repetition import also_nightly


@pytest.mark.parametrize("unsealed", also_nightly(["some hours"], ["nothing", "everything"]))
def test_cells_are_the_same_from_files_and_from_the_log(
    store: Store, tmp_path: Path, unsealed: str
) -> None:
    built(store, range(12))
    lake = FolderLake(tmp_path / "lake")
    expected, _ = recomputed_rows(store, as_of=END, settings=SETTINGS, lake=lake)
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

    recomputed, _ = recomputed_rows(store, as_of=END, settings=SETTINGS, lake=lake)

    assert any(rows["cells"] for rows in expected.values())
    assert recomputed == expected
