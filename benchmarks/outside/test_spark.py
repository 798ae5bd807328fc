"""Spark on a cluster of real processes tells what DuckDB and the specification tell."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from random import Random
from typing import Any

import pytest
from canary_traffic.demo import play
from click.testing import CliRunner
from rich.console import Console

from benchmarks.days.spark_cluster import ON_A_CLUSTER, Cluster, running_cluster
from cli.main import main
from orchestration.pipeline.day_check import Comparison, compare_days
from storage.lake.day_engines import DayEngineSettings
from storage.lake.lake import FolderLake
from storage.lake.sealing import Sealer
from storage.schema.clock import closed_instant
from storage.upkeep.reading import separate_reading
from tests.cli.conftest import serving
from tests.conftest import Store
from tests.pipeline.engines.rows import Rows, oracle_rows, recomputed_rows, without_keys
from tests.pipeline.engines.test_engines import END, built, differences, unequal_worlds
from tests.processes.api_process import eventually

pytestmark = ON_A_CLUSTER


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("spark")) as started:
        yield started


@pytest.fixture
def lake(tmp_path) -> FolderLake:
    return FolderLake(tmp_path / "lake")


def sealed_worlds(store: Store, lake: FolderLake, seeds: Sequence[int]) -> list[str]:
    """Builds worlds whose first hours are in files and whose last are not; returns experiments."""
    worlds = built(store, seeds)
    run = Sealer(engine=store.engine, lake=lake).seal()
    assert run is not None
    assert run.rows > 0
    with store.engine.begin() as connection:
        connection.exec_driver_sql(
            "DELETE FROM sealed_hours WHERE extract(hour FROM hour) IN (21, 23, 1)"
        )
    return [experiment for world in worlds for experiment in world.experiments]


def computed(
    store: Store, lake: FolderLake, settings: DayEngineSettings
) -> tuple[dict[str, Rows], dict[str, datetime]]:
    """Returns an engine's rows by experiment, and up to when each is read."""
    return recomputed_rows(store, as_of=END, settings=settings, lake=lake)


@pytest.mark.parametrize("first", [0, 50])
def test_spark_tells_of_random_worlds_what_duckdb_and_the_specification_tell(
    cluster, store, lake, first
) -> None:
    experiments = sealed_worlds(store, lake, range(first, first + 10))
    by_duckdb, ends = computed(store, lake, DayEngineSettings())
    by_spark, _ = computed(store, lake, DayEngineSettings(spark_remote=cluster.remote))
    assert by_spark.keys() == by_duckdb.keys() == set(experiments)
    unequal: dict[str, Any] = {}
    with store.engine.connect() as connection:
        for experiment, rows in by_spark.items():
            oracle = oracle_rows(connection, experiment, until=ends[experiment])
            without = {**rows, "amounts": without_keys(rows["amounts"])}
            unequal[experiment] = [
                differences(by_duckdb[experiment], rows),
                differences(without, oracle),
            ]
    assert unequal == {experiment: [{}, {}] for experiment in experiments}
    # Nothing of the computation is left beside the log.
    assert not list(lake.folder.glob("scratch/*"))


@pytest.mark.parametrize("decided", [None, Random(4000)])
def test_what_is_caught_up_on_spark_goes_on_in_postgresql_as_the_specification_tells(
    cluster, store, lake, monkeypatch, decided
) -> None:
    # As the fast schedule does: hours behind on the cluster, then block by block.
    monkeypatch.setenv("SERVICE_LAKE", str(lake.folder))
    spent = cluster.cpu_seconds()
    settings = DayEngineSettings(spark_remote=cluster.remote)
    worlds = range(4000, 4010)
    assert unequal_worlds(store, worlds, decided=decided, settings=settings) == {}
    assert cluster.cpu_seconds() > spent + 5
    assert not list(lake.folder.glob("scratch/*"))


Documents = Callable[..., str]


_READS = """
import sys
from pathlib import Path
from storage.lake.lake import FolderLake
from spark_engine import open_spark
with open_spark(sys.argv[1], lake=FolderLake(Path(sys.argv[2]))) as engine:
    print(*map(tuple, engine.rows("SELECT 1 AS number")))
"""


def test_a_process_whose_main_module_has_no_file_as_dagsters_runs_reads_on_spark(
    cluster, tmp_path
) -> None:
    words = [sys.executable, "-c", _READS, cluster.remote, str(tmp_path)]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (0, "(1,)\n"), process.stderr


@pytest.fixture
def documents(store, lake, monkeypatch) -> Documents:
    """Returns every verdict and its evidence as of a time, by an engine."""
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
    monkeypatch.setenv("SERVICE_LAKE", str(lake.folder))

    def run(*words: str, **variables: str) -> str:
        result = CliRunner(env=variables).invoke(main, list(words), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def assert_equal_documents(documents: Documents, cluster: Cluster, as_of: str) -> list[Any]:
    """Holds both engines' documents against each other, and returns the verdicts' contracts."""
    words = ("evaluate", "--as-of", as_of, "--evidence", "--json")
    by_duckdb = documents(*words)
    by_spark = documents(*words, SERVICE_ENGINE="spark", SERVICE_SPARK_REMOTE=cluster.remote)
    assert by_spark == by_duckdb
    return [document["contract"] for document in json.loads(by_spark)]


def test_the_demo_is_decided_checked_and_rebuilt_on_spark_as_in_duckdb(
    cluster, service, lake, documents
) -> None:
    with serving(service) as url:
        # Nothing computes verdicts here but the two engines: the time to wait for them is none.
        play(
            Console(file=io.StringIO()),
            api_url=url,
            dagster_url="http://127.0.0.1:3000",
            keys=service.project.keys,
            timeout=0,
        )
    assert Sealer(engine=service.store.engine, lake=lake).seal() is not None
    with service.store.engine.connect() as connection:
        as_of = closed_instant(connection)
    contracts = assert_equal_documents(documents, cluster, as_of.isoformat())
    assert {contract["verdict"] for contract in contracts} == {"keep", "rollback"}

    # The assets: history of days is read by the engine, and published by PostgreSQL.
    on_spark = {"SERVICE_ENGINE": "spark", "SERVICE_SPARK_REMOTE": cluster.remote}
    served = json.loads(documents("evaluate", "--json", **on_spark))
    assert verdicts_and_lifts(served) == verdicts_and_lifts(contracts)
    # What is computed of all days in DuckDB and on Spark is what was served; then a row is not.
    days = as_of.date() - timedelta(days=5), as_of.date()
    spark, duckdb = DayEngineSettings(spark_remote=cluster.remote), DayEngineSettings()
    assert [compared(service.store, days, settings).equal for settings in (duckdb, spark)] == [
        True,
        True,
    ]
    with service.store.engine.begin() as connection:
        connection.exec_driver_sql(
            "DELETE FROM exposures WHERE (experiment_id, unit) ="
            " (SELECT experiment_id, min(unit) FROM exposures GROUP BY 1 LIMIT 1)"
        )
    differing = [compared(service.store, days, settings).hours for settings in (duckdb, spark)]
    assert differing[0] == differing[1]
    assert ("exposures", 1) in [(each.table, each.computed - each.served) for each in differing[1]]
    # A rebuild on Spark puts it back.
    documents("rebuild", "--json", **on_spark)
    assert compared(service.store, days, duckdb).equal


def test_a_connect_server_that_dies_ends_the_command_with_one_sentence_and_publishes_nothing(
    tmp_path, store, lake
) -> None:
    sealed_worlds(store, lake, range(110, 112))
    with running_cluster(tmp_path) as cluster:
        environment = {
            **os.environ,
            "SERVICE_DATABASE_URL": store.url,
            "SERVICE_SECRET": "a secret of the tests, long enough",
            "SERVICE_LAKE": str(lake.folder),
            "SERVICE_ENGINE": "spark",
            "SERVICE_SPARK_REMOTE": cluster.remote,
        }
        command = subprocess.Popen(
            [sys.executable, "-m", "cli", "rebuild", "--json"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun = eventually(
            lambda: list(lake.folder.glob("scratch/*/seen-*")) or command.poll() is not None,
            seconds=300,
        )
        assert begun is not True, "the command ended before the server was killed"
        cluster.kill("connect")
        # The client's own bound is ten minutes.
        _, errors = command.communicate(timeout=300)

    assert command.returncode == 1
    assert "Spark could not" in errors.splitlines()[-1]
    with store.engine.connect() as connection:
        assert not connection.exec_driver_sql(
            "SELECT count(*) FROM verdicts WHERE decided"
        ).scalar()
        assert not connection.exec_driver_sql("SELECT count(*) FROM set_aside").scalar()


def verdicts_and_lifts(contracts: Sequence[Any]) -> list[tuple[str, float]]:
    return sorted((contract["verdict"], contract["lift"]) for contract in contracts)


def compared(store: Store, days: tuple[date, date], settings: DayEngineSettings) -> Comparison:
    """Compares what is served of some days with what an engine computes of them."""
    with separate_reading(store.engine) as separate:
        as_of = closed_instant(separate)
        return compare_days(separate, *days, as_of=as_of, settings=settings)
