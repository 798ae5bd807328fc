"""Runs that die: they fail once nobody holds their lock, and whoever lives goes on."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import text

from cli.processes.dagster_home import LOCATION, POSTGRES_VARIABLE
from orchestration.dagster.assets import exposures
from orchestration.dagster.jobs import INCREMENT
from orchestration.dagster.partitions import PARTITION_TAG
from orchestration.dagster.resources import Store
from orchestration.definitions import resources
from storage.postgres.dagster_schema import dagster_url
from storage.postgres.run_lock import place_of
from storage.schema.clock import claim_derived_tables
from storage.upkeep.reading import REBUILD_LOCK
from tests.processes.api_process import descendants_of, eventually
from tests.processes.dagster_web import our_dagster
from tests.processes.runs import look
from tests.stores.barrier import await_waiting

RUN = """
import sys
import dagster as dg
from orchestration.definitions import definitions

with dg.DagsterInstance.get() as instance:
    definitions.resolve_job_def("deploy_reward_fast").execute_in_process(
        instance=instance, partition_key=sys.argv[1], raise_on_error=False
    )
"""
_LAUNCH = """
mutation ($selector: JobOrPipelineSelector!, $config: RunConfigData, $tags: [ExecutionTag!]!) {
  launchRun(
    executionParams: {
      selector: $selector, runConfigData: $config, executionMetadata: {tags: $tags}
    }
  ) {
    __typename
  }
}
"""
STARTED, FAILURE = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE
SUCCESS = dg.DagsterRunStatus.SUCCESS


def states(instance: dg.DagsterInstance, job: str) -> list[dg.DagsterRunStatus]:
    """The states of a job's runs, the first of them first."""
    return [run.status for run in instance.get_runs(dg.RunsFilter(job_name=job))][::-1]


def test_a_run_whose_process_is_killed_fails_within_two_ticks_and_a_living_one_goes_on(
    canary, store, today, tmp_path
) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance, canary.engine.begin() as other:
        # The run waits in its first step, as for another run.
        claim_derived_tables(other)
        holding = dg.RunsFilter(tags={"deploy_reward/store": place_of(canary.engine)})
        assert instance.get_runs(holding) == []
        with subprocess.Popen([sys.executable, "-c", RUN, today], env=environment) as process:
            try:
                eventually(lambda: instance.get_runs(holding), seconds=60)
                living = look(instance, canary.url, look(instance, canary.url).cursor)
                assert states(instance, "deploy_reward_fast") == [STARTED]
            finally:
                process.kill()
        # Of a run of another store nothing is known here.
        assert look(instance, store.url, living.cursor).cursor == "[]"
        eventually(lambda: look(instance, canary.url).cursor != "[]")
        suspected = look(instance, canary.url, living.cursor)
        assert states(instance, "deploy_reward_fast") == [STARTED]

        look(instance, canary.url, suspected.cursor)

        assert states(instance, "deploy_reward_fast") == [FAILURE]


def test_a_run_of_a_team_s_own_steps_and_processes_is_never_taken_for_dead(
    canary, instance
) -> None:
    """Between two of our steps, each in a process of its own, nobody holds its lock."""
    for processes, runs in ((False, 0), (True, 1)):
        store = Store(database_url=canary.url, runs_are_processes=processes)
        dg.materialize([exposures], instance=instance, resources=resources(store))
        holding = dg.RunsFilter(tags={"deploy_reward/store": place_of(canary.engine)})
        assert len(instance.get_runs(holding)) == runs


@pytest.mark.process
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_killed_code_server_s_run_fails_within_two_minutes_frees_its_place_and_fast_runs_go_on(
    canary, today, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv(POSTGRES_VARIABLE, dagster_url(canary.url))
    with our_dagster(tmp_path, canary.url) as dagster, canary.engine.connect() as other:
        # The run of the day waits in its middle, as for another rebuild; fast ones do not.
        other.execute(text("SELECT pg_advisory_lock(:key)"), {"key": REBUILD_LOCK})

        def launch(job: str, config: dg.RunConfig) -> None:
            selector = {"repositoryLocationName": LOCATION, "repositoryName": "__repository__"}
            tags = [{"key": PARTITION_TAG, "value": today}]
            run = {
                "selector": {**selector, "jobName": job},
                "config": config.to_config_dict(),
                "tags": tags,
            }
            succeeded = "LaunchRunSuccess"
            eventually(lambda: dagster.ask(_LAUNCH, **run)["launchRun"]["__typename"] == succeeded)

        with dg.DagsterInstance.from_config(str(tmp_path / "data" / "dagster")) as instance:
            launch("deploy_reward_day", dg.RunConfig())
            eventually(lambda: states(instance, "deploy_reward_day") == [STARTED], seconds=240)
            await_waiting(canary.engine, REBUILD_LOCK)
            (server,) = (pid for pid in descendants_of(dagster.pid) if is_code_server(pid))
            for pid in (server, *descendants_of(server)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            succeeded = states(instance, "deploy_reward_fast").count(SUCCESS)
            launch("deploy_reward_fast", INCREMENT)
            eventually(lambda: states(instance, "deploy_reward_day")[0] is FAILURE, seconds=120)
            eventually(
                lambda: states(instance, "deploy_reward_fast").count(SUCCESS) > succeeded,
                seconds=240,
            )
            # The pool has a single place, which the second try has by now.
            other.invalidate()
            eventually(
                lambda: states(instance, "deploy_reward_day") == [FAILURE, SUCCESS], seconds=240
            )


def is_code_server(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return b"\0grpc\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
