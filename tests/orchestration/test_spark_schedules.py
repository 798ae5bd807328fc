"""Schedules with SERVICE_ENGINE=spark publish what DuckDB would, while a worker is killed."""

from concurrent.futures import ThreadPoolExecutor

from benchmarks.days.spark_cluster import ON_A_CLUSTER, running_cluster
from storage.lake.lake import open_lake
from storage.lake.sealing import Sealer
from storage.schema.clock import claim_derived_tables
from tests.processes.api_process import eventually
from tests.stores.derived import served_of
from tests.stores.emptied import empty_derived_tables

pytestmark = ON_A_CLUSTER


def test_runs_on_spark_publish_and_cure_what_duckdb_would_while_a_worker_is_killed(
    canary, instance, today, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("SERVICE_LAKE", str(tmp_path / "lake"))
    assert Sealer(engine=canary.engine, lake=open_lake()).seal()
    assert canary.run("deploy_reward_fast", instance, today).success
    derived, verdicts = canary.derived(), served_of(canary.engine)
    with canary.engine.begin() as connection:
        claim_derived_tables(connection)
        empty_derived_tables(connection)
    (tmp_path / "spark").mkdir()

    with running_cluster(tmp_path / "spark") as cluster:
        monkeypatch.setenv("SERVICE_ENGINE", "spark")
        monkeypatch.setenv("SERVICE_SPARK_REMOTE", cluster.remote)
        spent = cluster.cpu_seconds()
        assert canary.run("deploy_reward_fast", instance, today).success
        assert cluster.cpu_seconds() > spent + 1
        assert canary.derived() == derived
        assert served_of(canary.engine) == verdicts

        # A day that has passed, so that its files are read; its cells are wrong, and a worker dies.
        day = canary.first_day.date()
        canary.tamper(
            "UPDATE cells SET n0 = n0 + 2 WHERE experiment_id = '{view}'"
            f" AND to_timestamp(block / 1e6)::date = '{day}'"
        )
        assert canary.derived() != derived
        spent = cluster.cpu_seconds()
        with ThreadPoolExecutor(1) as other:
            death = other.submit(
                lambda: (
                    eventually(lambda: cluster.cpu_seconds() > spent + 3, seconds=300)
                    and cluster.kill(cluster.workers[-1])
                )
            )
            run = canary.run("deploy_reward_day", instance, day.isoformat())
        death.result()
        assert len(cluster.workers) == 1

    assert run.success
    assert canary.derived() == derived
    checks = run.get_asset_check_evaluations()
    assert checks
    assert [check.check_name for check in checks if not check.passed] == []
    assert served_of(canary.engine) == verdicts
