"""The jobs: the pipeline where a block closed, and all of it, with every check, each hour."""

import dagster as dg

from orchestration.dagster.assets import STEPS
from orchestration.dagster.cells import REBUILT, CellsRun
from orchestration.dagster.checks import (
    FACTS,
    decided_verdicts_are_unchanged,
    no_experiment_is_set_aside,
    no_keep_with_a_breach,
    running_p_never_rose,
)
from orchestration.dagster.keys import LEDGER, POOL_TAG, PREFIX, SESSION_CELLS
from orchestration.dagster.sealed_log import SEALED, sealed_log
from orchestration.dagster.sources import log

# A run whose processes were all killed stays in progress for ever unless it says how long it may.
_MAX_RUNTIME = "dagster/max_runtime"

INCREMENT = dg.RunConfig(ops={"__".join(SESSION_CELLS.path): CellsRun(increment=True)})

fast = dg.define_asset_job(
    f"{PREFIX}_fast",
    description="The pipeline from new events to verdicts, with the checks that are cheap. At most"
    " one run for each block of five minutes that closes: none where no unit came.",
    selection=dg.AssetSelection.assets(*STEPS).without_checks()
    | dg.AssetSelection.checks(
        no_keep_with_a_breach,
        decided_verdicts_are_unchanged,
        running_p_never_rose,
        no_experiment_is_set_aside,
    ),
    config=INCREMENT,
    tags={_MAX_RUNTIME: "900", POOL_TAG: "fast", "dagster/priority": "10"},
    executor_def=dg.in_process_executor,
)

day = dg.define_asset_job(
    f"{PREFIX}_day",
    description="The same pipeline, the log observed and every fact checked; for a day whose last"
    " metric has closed, a rebuild of that day from the log. 25 runs a day.",
    selection=dg.AssetSelection.assets(log, sealed_log, *STEPS, LEDGER)
    | dg.AssetSelection.checks(*FACTS, REBUILT, SEALED),
    tags={_MAX_RUNTIME: "1800", POOL_TAG: "day", "dagster/priority": "-10"},
    executor_def=dg.in_process_executor,
)

OTHERS = [SEALED, *(fact.check_key for fact in FACTS)]

JOBS = (fast, day)
