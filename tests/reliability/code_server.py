"""What a code server has loaded before its first tick, and a tick of the sensor in it."""

import dagster as dg

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
