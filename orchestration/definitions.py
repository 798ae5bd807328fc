"""The definitions: everything that Dagster is told of the service, put together in one place."""

import dagster as dg

from orchestration.alerts import alert
from orchestration.assets import STEPS
from orchestration.checks import FACTS
from orchestration.housekeeping import each_day, housekeeping
from orchestration.jobs import JOBS
from orchestration.resources import Store
from orchestration.schedules import SCHEDULES
from orchestration.sealed_log import sealed_hours_hold_what_the_log_held, sealed_log
from orchestration.sources import log
from orchestration.webhooks import webhooks

definitions = dg.Definitions(
    assets=[log, sealed_log, *STEPS],
    asset_checks=[*FACTS, sealed_hours_hold_what_the_log_held],
    jobs=[*JOBS, housekeeping],
    schedules=[*SCHEDULES, each_day],
    sensors=[webhooks, alert],
    resources={"store": Store()},
    # One process: the steps are one query each, and wait for one another anyway.
    executor=dg.in_process_executor,
)
