"""The service as a guest: in somebody else's Dagster nothing of theirs fails or is touched."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import make_url

from orchestration.dagster.host_storage import HostStorageError, refuse_storage
from tests.processes.api_process import eventually

# Theirs: names that ours could be taken for, a resource of the same key, packages called as ours.
FOREIGN = """
import api
import dagster as dg
import storage

assert storage.OF_THEIRS and api.OF_THEIRS

@dg.asset
def verdicts(store: dg.ResourceParam[str]) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"store": store})

everything = dg.define_asset_job("fast", selection=dg.AssetSelection.all())

@dg.sensor(
    job=everything,
    minimum_interval_seconds=3600,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def fast_sensor():
    return dg.RunRequest(run_key="once")

definitions = dg.Definitions(
    assets=[verdicts],
    jobs=[everything],
    sensors=[fast_sensor],
    resources={"store": "theirs"},
    executor=dg.in_process_executor,
)
"""
WORKSPACE = """
load_from:
  - python_module:
      module_name: orchestration.definitions
      location_name: deploy_reward
      executable_path: {python}
      working_directory: {folder}
  - python_file:
      relative_path: foreign.py
      location_name: foreign
      attribute: definitions
"""
NO_STORE = "postgresql://nobody@127.0.0.1:1/none"
SUCCESS = dg.DagsterRunStatus.SUCCESS


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A DAGSTER_HOME without a word of ours in it: all settings are Dagster's own."""
    (tmp_path / "foreign.py").write_text(FOREIGN)
    for package in ("api", "storage"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("OF_THEIRS = True")
    ours = tmp_path / "deploy-reward"
    ours.mkdir()
    workspace = WORKSPACE.format(python=sys.executable, folder=ours)
    (tmp_path / "workspace.yaml").write_text(workspace)
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return tmp_path


@contextmanager
def daemon(home: Path, url: str) -> Iterator[dg.DagsterInstance]:
    """The records of a Dagster whose daemon runs over both code locations, ours on a store."""
    environment = {**os.environ, "DAGSTER_HOME": str(home), "SERVICE_DATABASE_URL": url}
    command = [sys.executable, "-m", "dagster._daemon", "run", "-w", "workspace.yaml"]
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        (home / "output").open("wb") as output,
    ):
        # Their tables are made when they are first read: not by two processes at once.
        instance.all_instigator_state()
        instance.get_runs()
        instance.get_latest_materialization_event(dg.AssetKey("verdicts"))
        process = subprocess.Popen(
            command,
            cwd=home,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield instance
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def ended(instance: dg.DagsterInstance) -> dict[str, list[dg.DagsterRunStatus]]:
    """The states of the runs of each job, once they have ended."""
    states: dict[str, list[dg.DagsterRunStatus]] = {}
    for run in instance.get_runs():
        if run.is_finished:
            states.setdefault(run.job_name, []).append(run.status)
    return states


def ticks(instance: dg.DagsterInstance, location: str) -> set[str]:
    """How the ticks of a location's sensors ended."""
    return {
        tick.status.value
        for state in instance.all_instigator_state()
        if state.origin.repository_origin.code_location_origin.location_name == location
        for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id)
        if tick.status.value != "STARTED"
    }


def theirs(instance: dg.DagsterInstance) -> Any:
    """What the last materialization of their asset says of the resource that it was given."""
    event = instance.get_latest_materialization_event(dg.AssetKey("verdicts"))
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization.metadata["store"].value


@pytest.mark.process
def test_in_somebody_elses_dagster_nothing_of_theirs_is_touched(home: Path, canary: Any) -> None:
    with daemon(home, canary.url) as instance:
        eventually(lambda: {"fast", "deploy_reward_fast"} <= ended(instance).keys(), seconds=280)
        assert ended(instance)["fast"] == ended(instance)["deploy_reward_fast"] == [SUCCESS]
        assert canary.contract("click")["verdict"] == "keep"
        assert "FAILURE" not in ticks(instance, "foreign") | ticks(instance, "deploy_reward")
        assert theirs(instance) == "theirs"


@pytest.mark.process
@pytest.mark.deep
def test_in_somebody_elses_dagster_nothing_of_theirs_fails_while_our_store_is_down(
    home: Path,
) -> None:
    with daemon(home, NO_STORE) as instance:
        eventually(
            lambda: "FAILURE" in ticks(instance, "deploy_reward") and "fast" in ended(instance),
            seconds=280,
        )
        assert ended(instance)["fast"] == [SUCCESS]
        assert "FAILURE" not in ticks(instance, "foreign")
        assert theirs(instance) == "theirs"


HOST = """
storage:
  postgres:
    postgres_db:
      {username: deploy_reward, hostname: "", db_name: %s, params: %s%s}
"""


def test_a_host_whose_storage_cannot_be_written_is_refused_in_a_line_that_cures_it(
    canary: Any, today: str, tmp_path: Path
) -> None:
    url = make_url(canary.url)
    params = json.dumps({**url.query, "options": "-c search_path=public"})
    settings = tmp_path / "dagster.yaml"
    settings.write_text(HOST % (url.database, params, ""))
    load = [sys.executable, "-c", "import orchestration.definitions"]
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    refused = subprocess.run(load, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "add `scheme: postgresql+psycopg2` to postgres_db" in refused.stderr.splitlines()[-1]

    settings.write_text(HOST % (url.database, params, ", scheme: postgresql+psycopg2"))
    refuse_storage(environment)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        canary.run("deploy_reward_fast", instance, today)
        assert [run.status for run in instance.get_runs()] == [SUCCESS]


def test_other_forms_of_the_same_storage_are_refused_and_others_are_not(tmp_path: Path) -> None:
    environment = {"DAGSTER_HOME": str(tmp_path), "HOST_URL": "postgresql://host/db"}
    refuse_storage(environment)
    for storage in (
        "storage: {postgres: {postgres_url: {env: HOST_URL}}}",
        "run_storage: {module: m, class: c, config: {postgres_db: {hostname: h}}}",
    ):
        (tmp_path / "dagster.yaml").write_text(storage)
        with pytest.raises(HostStorageError):
            refuse_storage(environment)
