"""A materialization of the pipeline in this process, for a command that waits for it."""

from datetime import UTC, datetime

import dagster as dg

from orchestration.dagster.jobs import INCREMENT, fast
from orchestration.dagster.resources import Store
from orchestration.definitions import definitions, resources

# The loggers come last: the configuration has a member `loggers` of its own, which is empty.
_CONFIG = {**INCREMENT.to_config_dict(), "loggers": {"console": {"config": {"log_level": "ERROR"}}}}


def materialize_pipeline(url: str) -> bool:
    """Materializes exposures, cells, evidence and verdicts, with their checks, and tells success.

    Args:
        url: The store. Dagster's own records of the run are not kept.
    """
    with dg.DagsterInstance.ephemeral() as instance:
        result = definitions.resolve_job_def(fast.name).execute_in_process(
            instance=instance,
            partition_key=datetime.now(UTC).date().isoformat(),
            resources=resources(Store(database_url=url)),
            run_config=_CONFIG,
            raise_on_error=False,
        )
    return result.success
