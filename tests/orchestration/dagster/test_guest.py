"""The service as a guest: in somebody else's Dagster nothing of theirs fails or is touched."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from own_postgres.child_process import spawn
from sqlalchemy import make_url

from cli.processes.children import free_port
from orchestration.dagster.host_storage import HostStorageError, refuse_storage
from tests.processes.api_process import descendants_of, eventually

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

each_minute = dg.ScheduleDefinition(
    name="fast",
    job=everything,
    cron_schedule="* * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)

definitions = dg.Definitions(
    assets=[verdicts],
    jobs=[everything],
    schedules=[each_minute],
    resources={"store": "theirs"},
    executor=dg.in_process_executor,
)
"""
WORKSPACE = """
load_from:
  - grpc_server: {host: 127.0.0.1, port: %s, location_name: deploy_reward}
  - python_file:
      relative_path: foreign.py
      location_name: foreign
      attribute: definitions
"""
TABLES = """
import dagster as dg

with dg.DagsterInstance.get() as instance:
    instance.all_instigator_state(), instance.get_runs()
    instance.get_latest_materialization_event(dg.AssetKey("verdicts"))
"""
NO_STORE = "postgresql://nobody@127.0.0.1:1/none"
SUCCESS = dg.DagsterRunStatus.SUCCESS


# Their Dagster, by its Python: the oldest that we support, and ours, the newest.
OLDEST = Path(__file__).parents[3] / "build" / "host" / "bin" / "python"
NEWEST = Path(sys.executable)


def dagster_yaml(storage: str, url: str) -> str:
    """Settings of theirs, without a word of ours but the driver's name."""
    at = make_url(url).update_query_dict({"options": "-c search_path=public"})
    by_parts = {"username": at.username, "hostname": "", "db_name": at.database}
    whole = at.set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)
    forms: dict[str, Any] = {
        "sqlite": {},
        "postgres_db": {
            "postgres_db": {**by_parts, "params": {**at.query}, "scheme": "postgresql+psycopg2"}
        },
        "postgres_db without a driver": {"postgres_db": {**by_parts, "params": {**at.query}}},
        "postgres_url": {"postgres_url": whole},
    }
    named = {"storage": {"postgres": forms[storage]}} if forms[storage] else {}
    return json.dumps({"telemetry": {"enabled": False}, **named})


@pytest.fixture
def home(tmp_path) -> Path:
    """A DAGSTER_HOME of theirs, beside packages of theirs that are called as ours."""
    (tmp_path / "foreign.py").write_text(FOREIGN)
    for package in ("api", "storage"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("OF_THEIRS = True")
    (tmp_path / "deploy-reward").mkdir()
    return tmp_path


@contextmanager
def daemon(
    home: Path, url: str, *, python: Path = NEWEST, settings: str | None = None
) -> Iterator[dg.DagsterInstance]:
    """The records of their Dagster, whose daemon runs over their code and over our code server."""
    (home / "dagster.yaml").write_text(settings or dagster_yaml("sqlite", url))
    port = free_port()
    (home / "workspace.yaml").write_text(WORKSPACE % port)
    env = {**os.environ, "DAGSTER_HOME": str(home), "SERVICE_DATABASE_URL": url}
    serve = ["-m", "orchestration.definitions", "--host", "127.0.0.1", "--port", str(port)]
    server = [sys.executable, "-m", "dagster", "api", "grpc", *serve, "--location-name"]
    # Their tables are made when they are first read: by them, and not by two processes at once.
    subprocess.run([python, "-c", TABLES], env=env, check=True)
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        running([*server, "deploy_reward"], env, home / "deploy-reward") as said,
    ):
        # A daemon that asks too early asks again after the next minute's ticks.
        eventually(lambda: "Started Dagster code server" in said.read_text())
        with running([python, "-m", "dagster._daemon", "run", "-w", "workspace.yaml"], env, home):
            yield instance


@contextmanager
def running(command: Sequence[str | Path], env: dict[str, str], folder: Path) -> Iterator[Path]:
    """A process, which ends with all that it started: the file of its output."""
    log = folder / "output"
    process = spawn(command, log=log, env=env, cwd=folder)
    try:
        yield log
    finally:
        for pid in (process.pid, *descendants_of(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
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
@pytest.mark.parametrize(
    ("python", "storage"),
    [
        (NEWEST, "sqlite"),
        pytest.param(NEWEST, "postgres_db", marks=pytest.mark.nightly),
        pytest.param(OLDEST, "postgres_url", marks=pytest.mark.nightly),
    ],
    ids=["newest, SQLite", "newest, postgres_db", "oldest, postgres_url"],
)
def test_in_somebody_elses_dagster_our_runs_end_and_nothing_of_theirs_is_touched(
    home, canary, python, storage
) -> None:
    if not python.exists():
        pytest.skip("the oldest Dagster that we support is not here: `make host` installs it")
    settings = dagster_yaml(storage, canary.url)
    with daemon(home, canary.url, python=python, settings=settings) as instance:
        eventually(lambda: {"fast", "deploy_reward_fast"} <= ended(instance).keys(), seconds=280)
        if python == OLDEST:
            runs = len(ended(instance)["fast"])
            eventually(lambda: len(ended(instance)["fast"]) > runs, seconds=280)
        assert {*ended(instance)["fast"], *ended(instance)["deploy_reward_fast"]} == {SUCCESS}
        assert canary.contract("click")["verdict"] == "keep"
        assert "FAILURE" not in ticks(instance, "foreign") | ticks(instance, "deploy_reward")
        assert theirs(instance) == "theirs"


@pytest.mark.process
@pytest.mark.deep
def test_in_somebody_elses_dagster_nothing_of_theirs_fails_while_our_store_is_down(home) -> None:
    with daemon(home, NO_STORE) as instance:
        eventually(
            lambda: "FAILURE" in ticks(instance, "deploy_reward") and "fast" in ended(instance),
            seconds=280,
        )
        assert ended(instance)["fast"] == [SUCCESS]
        assert "FAILURE" not in ticks(instance, "foreign")
        assert theirs(instance) == "theirs"


def test_a_host_whose_storage_cannot_be_written_is_refused_in_a_line_that_cures_it(
    store, tmp_path
) -> None:
    settings = tmp_path / "dagster.yaml"
    settings.write_text(dagster_yaml("postgres_db without a driver", store.url))
    load = [sys.executable, "-c", "import orchestration.definitions"]
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    refused = subprocess.run(load, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "add `scheme: postgresql+psycopg2` to postgres_db" in refused.stderr.splitlines()[-1]

    settings.write_text(dagster_yaml("postgres_db", store.url))
    refuse_storage(environment)


def test_other_forms_of_the_same_storage_are_refused_and_others_are_not(tmp_path) -> None:
    environment = {"DAGSTER_HOME": str(tmp_path), "HOST_URL": "postgresql://host/db"}
    refuse_storage(environment)
    for storage in (
        "storage: {postgres: {postgres_url: {env: HOST_URL}}}",
        "run_storage: {module: m, class: c, config: {postgres_db: {hostname: h}}}",
    ):
        (tmp_path / "dagster.yaml").write_text(storage)
        with pytest.raises(HostStorageError):
            refuse_storage(environment)
