"""The sensor that has the code server start again where partitions begin with another day.

Dagster reads where they begin once, as it loads the definitions.
"""

import asyncio
import json
import os

import dagster as dg

from orchestration.dagster.keys import PREFIX
from orchestration.dagster.partitions import begin_elsewhere
from orchestration.dagster.resources import Store

# Dagster's own verb: the server ends once its runs have, and its supervisor starts it again.
_END = """
mutation ($name: String!) {
  shutdownRepositoryLocation(repositoryLocationName: $name) { __typename }
}
"""


@dg.sensor(
    name=f"{PREFIX}_first_day",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Each minute: where the first event came after the start, or older history was"
    " imported, the code server ends and is started again, so that partitions begin with the first"
    " event. Launches no run.",
)
def first_day(context: dg.SensorEvaluationContext, store: Store) -> dg.SkipReason:
    """Asks Dagster's web server to end the code server, where SERVICE_DAGSTER_URL names it."""
    from orchestration.outbound.receiver import post
    from storage.schema import partitions

    with store.reading() as connection:
        first = partitions.first_day(connection)
    if first is None or not begin_elsewhere(first):
        return dg.SkipReason("partitions begin with the first event")
    address, location = os.environ.get("SERVICE_DAGSTER_URL"), context.code_location_origin
    # A team's own location holds more than ours.
    if not address or location is None or not store.runs_are_processes:
        return dg.SkipReason(f"load this code location again: the first event is of {first}")
    query = {"query": _END, "variables": {"name": location.location_name}}
    url, body = f"{address.rstrip('/')}/graphql", json.dumps(query).encode()
    taken = asyncio.run(post(url, body, headers={}, private=True)).taken
    result = "starts again" if taken else "could not be started again"
    return dg.SkipReason(f"the code server {result}: the first event is of {first}")
