"""The jobs: the pipeline where a block closed, sealing, and all of it for a settled day."""

import dagster as dg

from orchestration.dagster.assets import STEPS
from orchestration.dagster.cells import REBUILT, CellsRun
from orchestration.dagster.checks import (
    FACTS,
    decided_verdicts_are_unchanged,
    every_received_unit_is_accounted,
    no_experiment_is_set_aside,
    no_keep_with_a_breach,
    running_p_never_rose,
    source_lag_is_under_the_grace,
)
from orchestration.dagster.keys import (
    LEDGER,
    OWN_SPLITS,
    POOL_TAG,
    PREFIX,
    SEALED_LOG,
    SESSION_CELLS,
)
from orchestration.dagster.sealed_log import SEALED, SealingRun, sealed_log
from orchestration.dagster.sources import log


def run_tags(pool: str, *, minutes: int, priority: int) -> dict[str, str]:
    """Returns the tags of a job's runs.

    Args:
        pool: Our `dagster.yaml` limits how many runs of a pool go on at once.
    """
    return {
        POOL_TAG: pool,
        "dagster/max_runtime": str(60 * minutes),
        "dagster/priority": str(priority),
    }


INCREMENT = dg.RunConfig(ops={"__".join(SESSION_CELLS.path): CellsRun(increment=True)})

fast = dg.define_asset_job(
    f"{PREFIX}_fast",
    description="The pipeline from new events to verdicts, with the checks that are cheap. At most"
    " a run for each block of five minutes that closes: none where no unit came.",
    selection=dg.AssetSelection.assets(*STEPS).without_checks()
    | dg.AssetSelection.checks(
        no_keep_with_a_breach,
        decided_verdicts_are_unchanged,
        running_p_never_rose,
        no_experiment_is_set_aside,
    ),
    config=INCREMENT,
    tags=run_tags("fast", minutes=15, priority=10),
    executor_def=dg.in_process_executor,
)

day = dg.define_asset_job(
    f"{PREFIX}_day",
    description="A day whose last metric has closed is computed anew from the log; the same"
    " pipeline for all that is new, every check, the regression, ledger and splits. Once a day.",
    selection=dg.AssetSelection.assets(log, sealed_log, *STEPS, LEDGER, OWN_SPLITS)
    | dg.AssetSelection.checks(*FACTS, REBUILT, SEALED),
    tags=run_tags("day", minutes=30, priority=-10),
    executor_def=dg.in_process_executor,
)

sealing = dg.define_asset_job(
    f"{PREFIX}_sealing",
    description="The log observed, its ended hours sealed into the lake, and what only the last"
    " hour's events show checked. It runs once an hour.",
    selection=dg.AssetSelection.assets(log, sealed_log).without_checks()
    | dg.AssetSelection.checks(
        SEALED, source_lag_is_under_the_grace, every_received_unit_is_accounted
    ),
    config=dg.RunConfig(ops={"__".join(SEALED_LOG.path): SealingRun(increment=True)}),
    tags=run_tags("sealing", minutes=30, priority=0),
    executor_def=dg.in_process_executor,
)

JOBS = (fast, day, sealing)
