"""Runs as launchers start them: a record in Dagster's storage, and a process that executes it."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._grpc.types import ExecuteRunArgs
from own_postgres.child_process import spawn

from orchestration.dagster.jobs import fast
from orchestration.dagster.partitions import PARTITION_TAG, key_of
from orchestration.dagster.resources import Store
from orchestration.dagster.upkeep.dead_runs import dead_runs
from orchestration.definitions import definitions, resources


@dataclass(frozen=True, kw_only=True)
class RunWorker:
    process: subprocess.Popen[bytes]
    log: Path

    def running(self) -> bool:
        return self.process.poll() is None

    def last_words(self) -> str:
        return self.log.read_text()[-4000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The runs of an instance whose records stand in the store."""

    url: str
    instance: dg.DagsterInstance
    env: Mapping[str, str]
    log: Path
    begun: list[str] = field(default_factory=list[str])

    def begin(self) -> RunWorker:
        job = definitions.resolve_job_def(fast.name)
        code = ReconstructableRepository.for_module("orchestration.definitions", "definitions")
        origin = code.get_reconstructable_job(fast.name).get_python_origin()
        run = self.instance.create_run_for_job(
            job,
            tags={**job.run_tags, PARTITION_TAG: key_of(datetime.now(UTC))},
            status=dg.DagsterRunStatus.STARTING,
            job_code_origin=origin,
        )
        self.begun.append(run.run_id)
        arguments = ExecuteRunArgs(origin, run.run_id, self.instance.get_ref())
        command = [sys.executable, "-m", *arguments.get_command_args()]
        return RunWorker(process=spawn(command, log=self.log, env=self.env), log=self.log)

    def statuses(self) -> set[dg.DagsterRunStatus]:
        """Returns what the records say of the runs that were begun."""
        records = self.instance.get_run_records(dg.RunsFilter(run_ids=self.begun))
        return {record.dagster_run.status for record in records}

    def reap(self) -> None:
        """Looks for dead runs twice, as the daemon does within a minute."""
        look(self.instance, self.url, look(self.instance, self.url).cursor)


def look(instance: dg.DagsterInstance, url: str, cursor: str | None = None) -> Any:
    """Returns what a tick of the sensor of dead runs says."""
    store = {"store": Store(database_url=url)}
    with dg.build_sensor_context(instance, cursor, resources=store) as context:
        return dead_runs(context)


def tick(
    schedule: dg.ScheduleDefinition,
    url: str,
    instance: dg.DagsterInstance,
    *,
    at: datetime | None = None,
) -> Any:
    """Returns the run requests of a schedule's tick, and why there are none."""
    with dg.build_schedule_context(
        instance=instance,
        scheduled_execution_time=at or datetime.now(UTC),
        resources=resources(Store(database_url=url)),
        repository_def=definitions.get_repository_def(),
    ) as context:
        return schedule.evaluate_tick(context)
