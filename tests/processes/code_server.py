"""What a code server has loaded before its first tick, and a tick of the fast schedule in it.

Commands are loaded beside, so that a test can fork a command, and kill it, at no cost.
"""

from collections.abc import Sequence

import dagster as dg

import cli.imports.command

# A command's module is imported when it is called, in whoever calls it.
import cli.operations.evaluate
import cli.operations.forget
import cli.operations.rebuild  # noqa: F401
from cli.main import main
from orchestration.dagster.assets import STEPS
from orchestration.dagster.keys import DUE_TAG
from orchestration.dagster.resources import Store
from orchestration.dagster.schedules import each_minute
from orchestration.definitions import definitions, resources
from tests.processes.runs import tick

# Resolved before a test forks.
definitions.get_repository_def()


def evaluate(url: str) -> str:
    """Executes the run that a tick of the fast schedule asks for, if any; returns its reason."""
    store = resources(Store(database_url=url))
    # Records of its own: a run that was killed is in progress there for as long as it may start.
    with dg.instance_for_test() as instance:
        asked = tick(each_minute, url, instance)
        for request in asked.run_requests or []:
            result = definitions.resolve_job_def(each_minute.job_name).execute_in_process(
                instance=instance,
                partition_key=request.partition_key,
                tags=request.tags,
                resources=store,
            )
            assert result.success
            return request.tags[DUE_TAG]
    return asked.skip_message or ""


def command(words: Sequence[str]) -> None:
    """Runs a command of ours, and exits as it does."""
    main(list(words))


def backfill(url: str, *, first: str, last: str) -> None:
    """Materializes the pipeline for a range of days in a run, as Dagster's backfills do."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            STEPS,
            instance=instance,
            tags={
                "dagster/asset_partition_range_start": first,
                "dagster/asset_partition_range_end": last,
            },
            resources=resources(Store(database_url=url)),
        )
    assert result.success
