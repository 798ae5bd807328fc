"""What a code server has loaded before its first tick, and a tick of the sensor in it.

Commands are loaded beside, so that a test can fork one, and kill it, at no cost.
"""

from collections.abc import Sequence

import dagster as dg

# A command's module is imported when it is called, in whoever calls it.
import cli.evaluate
import cli.forget
import cli.imports.command
import cli.rebuild  # noqa: F401
from cli.main import main
from orchestration.assets import STEPS
from orchestration.definitions import definitions
from orchestration.resources import Store
from orchestration.sensors import each_half_minute

_REPOSITORY = definitions.get_repository_def()
# Without one, Dagster makes another for the resources of each tick, which takes longer than it.
_INSTANCE = dg.DagsterInstance.ephemeral()


def evaluate(url: str) -> str:
    """Evaluates one tick of the sensor, and returns why it asks for no run, or for which."""
    with dg.build_sensor_context(
        instance=_INSTANCE,
        resources={"store": Store(database_url=url)},
        repository_def=_REPOSITORY,
    ) as context:
        asked = each_half_minute.evaluate_tick(context)
    return asked.skip_message or ", ".join(str(one.run_key) for one in asked.run_requests or [])


def command(words: Sequence[str]) -> None:
    """Runs one of our commands, and exits as it does."""
    main(list(words))


def backfill(url: str, *, first: str, last: str) -> None:
    """Materializes the walk for a range of days in one run, as Dagster's backfills do."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            STEPS,
            instance=instance,
            tags={
                "dagster/asset_partition_range_start": first,
                "dagster/asset_partition_range_end": last,
            },
            resources={"store": Store(database_url=url)},
        )
    assert result.success
