"""The definitions: everything that Dagster is told of the service, put together in one place."""

import dagster as dg

from orchestration.assets import STEPS
from orchestration.checks import FACTS
from orchestration.jobs import JOBS
from orchestration.resources import Store
from orchestration.schedules import SCHEDULES
from orchestration.sources import log

definitions = dg.Definitions(
    assets=[log, *STEPS],
    asset_checks=FACTS,
    jobs=JOBS,
    schedules=SCHEDULES,
    resources={"store": Store()},
    # One process: the steps are one query each, and wait for one another anyway.
    executor=dg.in_process_executor,
)
