"""The definitions: everything that Dagster knows of the service, put together.

Each run, the daemon and the code server import them. What computes (`stats`, the pipeline, pyarrow)
takes another CPU second to import: functions import it when they run.
"""

import dagster as dg

from orchestration.dagster.answers import ShownAnswers
from orchestration.dagster.assets import STEPS
from orchestration.dagster.checks import FACTS
from orchestration.dagster.engine import DayEngine
from orchestration.dagster.host_storage import refuse_storage
from orchestration.dagster.jobs import JOBS
from orchestration.dagster.resources import Store
from orchestration.dagster.schedules import SCHEDULES
from orchestration.dagster.sealed_log import sealed_log
from orchestration.dagster.sources import log
from orchestration.dagster.upkeep.alerts import alert
from orchestration.dagster.upkeep.dead_runs import dead_runs
from orchestration.dagster.upkeep.housekeeping import each_night, housekeeping
from orchestration.dagster.upkeep.partitions_start import first_day
from orchestration.dagster.upkeep.webhooks import webhooks
from orchestration.ledger.asset import ledger, own_splits

refuse_storage()


def resources(store: Store) -> dict[str, object]:
    """Returns what the assets, checks, schedules and sensors are handed."""
    return {"store": store, "engine": DayEngine(), "answers": ShownAnswers()}


def parts(store: Store) -> dg.Definitions:
    """Returns all definitions, without an executor: jobs name theirs."""
    return dg.Definitions(
        assets=[log, sealed_log, *STEPS, ledger, own_splits],
        asset_checks=FACTS,
        jobs=[*JOBS, housekeeping],
        schedules=[*SCHEDULES, each_night],
        sensors=[webhooks, alert, dead_runs, first_day],
        resources=resources(store),
    )


# Steps run in a single process: each is a single query, and waits for the step before it.
definitions = dg.Definitions.merge(
    parts(Store(runs_are_processes=True)), dg.Definitions(executor=dg.in_process_executor)
)
