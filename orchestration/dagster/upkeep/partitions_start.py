"""The sensor that has the code server start again: for partitions' first day, or for its memory.

Dagster reads where partitions begin once, as it loads the definitions. And the server grows by some
5 MiB an hour, by 12 with ten times the ticks.
"""

import asyncio
import json
import os
from pathlib import Path

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


_VARIABLE = "SERVICE_CODE_SERVER_MIB"
# Twice its size after a run: it takes two days to come so far.
_MOST_MEBIBYTES = "512"


def _mebibytes() -> int:
    """Returns the resident memory of this process, 0 where the system does not say it."""
    file = Path("/proc/self/statm")
    pages = int(file.read_text().split()[1]) if file.exists() else 0
    return pages * os.sysconf("SC_PAGESIZE") // 2**20


def _most_mebibytes() -> int:
    """Returns the memory from which on the server starts again, as the environment says it."""
    said = os.environ.get(_VARIABLE, "").strip() or _MOST_MEBIBYTES
    if not said.isdecimal():
        raise ValueError(f"{_VARIABLE} is {said!r}: it must be a whole number of MiB")
    return int(said)


@dg.sensor(
    name=f"{PREFIX}_first_day",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Each minute: where the first event came after the start, or older history was"
    " imported, the code server ends and is started again, so that partitions begin with the first"
    " event; as where it has grown beyond SERVICE_CODE_SERVER_MIB. Launches no run.",
)
def first_day(context: dg.SensorEvaluationContext, store: Store) -> dg.SkipReason:
    """Asks Dagster's web server to end the code server, where SERVICE_DAGSTER_URL names it."""
    from orchestration.outbound.receiver import post
    from storage.schema import partitions

    with store.reading() as connection:
        first = partitions.first_day(connection)
    if first is not None and begin_elsewhere(first):
        cause = f"the first event is of {first}"
    elif (size := _mebibytes()) > _most_mebibytes():
        cause = f"it takes {size} MiB"
    else:
        return dg.SkipReason("partitions begin with the first event")
    address, location = os.environ.get("SERVICE_DAGSTER_URL"), context.code_location_origin
    # A team's own location holds more than ours.
    if not address or location is None or not store.runs_are_processes:
        return dg.SkipReason(f"load this code location again: {cause}")
    query = {"query": _END, "variables": {"name": location.location_name}}
    url, body = f"{address.rstrip('/')}/graphql", json.dumps(query).encode()
    taken = asyncio.run(post(url, body, headers={}, private=True)).taken
    result = "starts again" if taken else "could not be started again"
    return dg.SkipReason(f"the code server {result}: {cause}")
