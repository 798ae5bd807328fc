"""The definitions: they load, and the graph is that of the docs."""

import subprocess
import sys
from typing import Any

import dagster as dg
import pytest

from cli.processes.dagster_home import write_dagster_home
from orchestration.definitions import definitions

SOURCES = {"runtime_events", "revenue_events", "deploys", "static_graphs"}
# What a platform engineer sees: asset, group, partitioned or not, what it is made from.
GRAPH = {
    **dict.fromkeys(SOURCES, ("log", False, set())),
    "sealed_log": ("units", True, {"runtime_events"}),
    "experiments": ("units", False, SOURCES),
    "exposures": (
        *("units", False),
        {"experiments", "sealed_log", "runtime_events", "deploys", "static_graphs"},
    ),
    "session_cells": ("units", True, {"exposures", "runtime_events", "revenue_events"}),
    "evidence": ("answers", False, {"session_cells", "exposures", "deploys"}),
    "verdicts": ("answers", False, {"evidence"}),
    "ledger": ("answers", False, {"verdicts"}),
    "own_splits": ("answers", False, {"exposures"}),
}
CHECKS = {
    "runtime_events": {"source_lag_is_under_the_grace"},
    "sealed_log": {"sealed_hours_hold_what_the_log_held"},
    "session_cells": {"rebuild_equals_increment"},
    "evidence": {
        "running_p_never_rose",
        "vif_equals_that_of_a_regression",
        "no_experiment_is_set_aside",
        "every_received_unit_is_accounted",
    },
    "verdicts": {"no_keep_with_a_breach", "decided_verdicts_are_unchanged"},
}


@pytest.fixture(scope="module")
def graph() -> Any:
    return definitions.resolve_asset_graph()


def test_the_definitions_load_and_the_asset_graph_is_that_of_the_docs(graph) -> None:
    dg.Definitions.validate_loadable(definitions)
    upstream = {
        node.key.path[-1]: (
            node.group_name.removeprefix("deploy_reward_"),
            node.is_partitioned,
            {parent.path[-1] for parent in node.parent_keys},
        )
        for node in graph.asset_nodes
    }

    assert upstream == GRAPH


def test_each_fact_stands_with_the_asset_that_it_is_about(graph) -> None:
    facts: dict[str, set[str]] = {}
    for key in graph.asset_check_keys:
        facts.setdefault(key.asset_key.path[-1], set()).add(key.name)

    assert facts == CHECKS


def test_runs_come_of_schedules_and_no_sensor_has_a_job() -> None:
    repository = definitions.get_repository_def()

    schedules = repository.schedule_defs
    assert {each.default_status for each in schedules} == {dg.DefaultScheduleStatus.RUNNING}
    assert {schedule.name for schedule in schedules} == {
        "deploy_reward_fast",
        "deploy_reward_day",
        "deploy_reward_sealing",
        "deploy_reward_housekeeping",
    }
    assert {sensor.name for sensor in repository.sensor_defs} == {
        "deploy_reward_webhooks",
        "deploy_reward_alert",
        "deploy_reward_dead_runs",
        "deploy_reward_first_day",
    }
    assert not any(sensor.has_jobs for sensor in repository.sensor_defs)


def test_every_asset_says_what_it_is_whose_and_of_what_kind(graph) -> None:
    for node in graph.asset_nodes:
        assert node.key.path[0] == "deploy_reward"
        assert "**" in node.description
        assert node.tags["service"] == "deploy_reward"
        # The ledger is counted anew each time, and stored nowhere.
        assert ("dagster/table_name" in node.metadata) == (node.key.path[-1] != "ledger")
        assert node.owners == ["team:deploy_reward"]
        assert "postgres" in node.kinds


def test_sources_are_observed_and_the_rest_is_kept_fresh(graph) -> None:
    assert {node.key.path[-1] for node in graph.asset_nodes if node.is_observable} == SOURCES
    assert {
        node.key.path[-1] for node in graph.asset_nodes if node.freshness_policy is None
    } == SOURCES


def test_every_job_runs_in_one_process_for_an_hour_at_most_and_in_a_pool(tmp_path) -> None:
    jobs = [job for job in definitions.get_repository_def().get_all_jobs() if job.name[0] != "_"]
    assert {job.name.partition("reward_")[0] for job in jobs} == {"deploy_"}
    assert {job.executor_def.name for job in jobs} == {"in_process"}
    assert all(int(job.run_tags["dagster/max_runtime"]) <= 3600 for job in jobs)
    limits = write_dagster_home(tmp_path).joinpath("dagster.yaml").read_text()
    assert all(f"value: {job.run_tags['deploy_reward/pool']}, limit" in limits for job in jobs)


def test_the_definitions_begin_with_the_first_event_and_load_no_library_of_a_computation(
    canary,
) -> None:
    # What Dagster and a look at the store take is all: a run imports the rest where it needs it.
    heavy = {
        *("duckdb", "fastapi", "httpx2", "msgspec", "numpy", "pandas", "pyarrow", "scipy"),
        *("sqlalchemy.ext.asyncio", "stats", "statsmodels", "domain.document"),
        *("orchestration.pipeline", "orchestration.outbound.receiver", "storage.experiments"),
        *("storage.lake", "storage.log", "storage.schema.tables", "storage.tenants"),
        *("storage.upkeep", "storage.verdicts", "storage.views"),
    }
    loads = (
        "import sys; from orchestration.definitions import definitions as d;"
        f"print({heavy} & {{*sys.modules}});"
        "print(d.get_job_def('deploy_reward_day').partitions_def.get_first_partition_key())"
    )
    command = [sys.executable, "-c", loads]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == ["set()", canary.first_day.date().isoformat()]
