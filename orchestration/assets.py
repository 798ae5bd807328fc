"""The assets: the four steps from the log to a verdict, each one transaction of its own."""

import json
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import dagster as dg
import pandas as pd

from orchestration.evidence import Drafted, draft_evidence
from orchestration.keys import (
    DEPLOYS,
    EVIDENCE,
    EXPOSURES,
    OWNERS,
    PREFIX,
    REVENUE_EVENTS,
    RUNTIME_EVENTS,
    SESSION_CELLS,
    STATIC_GRAPHS,
    VERDICTS,
)
from orchestration.partitions import DAYS, days_of
from orchestration.plot import MOST_CURVES, as_markdown, evidence_plot
from orchestration.resources import Store
from orchestration.table import markdown
from storage.cells import extend_cells
from storage.clock import closed_instant
from storage.exposures import extend_exposures
from storage.observations import SUMS, cells_of_days, units_by_arm
from storage.verdicts import publish_verdicts, stage_evidence

# The hourly run touches each, also where the fast one has nothing to do.
FRESHNESS = dg.FreshnessPolicy.time_window(
    fail_window=timedelta(hours=3), warn_window=timedelta(minutes=90)
)


@dg.asset(
    key=EXPOSURES,
    deps=[RUNTIME_EVENTS, DEPLOYS, STATIC_GRAPHS],
    group_name=f"{PREFIX}_units",
    owners=OWNERS,
    kinds={"postgres"},
    freshness_policy=FRESHNESS,
)
def exposures(store: Store) -> dg.MaterializeResult[Any]:
    """Who saw what: each unit's first qualifying event, its arm and its stratum.

    Final once the event's 5-minute block has closed: what is received later can neither make nor
    move an exposure.
    """
    with store.step() as connection:
        as_of = closed_instant(connection)
        added = extend_exposures(connection, as_of=as_of)
        arms = units_by_arm(connection)
    units = pd.DataFrame({"arm": list(arms), "units of open experiments": list(arms.values())})
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": sum(arms.values()),
            "added": added,
            "read_to": dg.MetadataValue.timestamp(as_of),
            "units": markdown(units),
        }
    )


with warnings.catch_warnings():
    # A range of days in one run rather than a run a day: all do the same, which is nothing new.
    warnings.simplefilter("ignore", dg.BetaWarning)

    @dg.asset(
        key=SESSION_CELLS,
        deps=[EXPOSURES, RUNTIME_EVENTS, REVENUE_EVENTS],
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=f"{PREFIX}_units",
        owners=OWNERS,
        kinds={"postgres"},
        freshness_policy=FRESHNESS,
    )
    def session_cells(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult[Any]:
        """What came of it: units and conversions of each block, stratum and arm.

        A cell is final once its outcomes have closed. Any run adds whatever closed, on whichever
        day; its partition is the day that it reports of. To run one again changes nothing.
        """
        days = days_of(context.partition_keys)
        with store.step() as connection:
            added = extend_cells(connection)
            rows = cells_of_days(connection, days.first, days.last)
        cells = pd.DataFrame(rows, columns=list(SUMS))
        return dg.MaterializeResult(
            metadata={
                "dagster/partition_row_count": sum(row.cells for row in rows),
                "added": added,
                "cells_of_these_days": markdown(cells),
            }
        )


@dg.asset(
    key=EVIDENCE,
    deps=[SESSION_CELLS, EXPOSURES, DEPLOYS],
    group_name=f"{PREFIX}_answers",
    owners=OWNERS,
    kinds={"python", "postgres"},
    freshness_policy=FRESHNESS,
)
def evidence(store: Store) -> dg.MaterializeResult[Any]:
    """What can be said: the always-valid test of every open experiment, look by look.

    Computed from closed cells alone and staged: no reader sees it before `verdicts` publishes it.
    """
    with store.step() as connection:
        drafted = draft_evidence(connection, as_of=closed_instant(connection))
        stage_evidence(connection, [one.draft for one in drafted])
    metadata: dict[str, Any] = {
        "experiments": len(drafted),
        "decided": sum(one.contract["power_state"]["decided"] for one in drafted),
        "nearest_to_an_answer": markdown(_nearest(drafted)),
    }
    if plot := _plot(drafted):
        metadata["plot"] = dg.MetadataValue.md(as_markdown(plot))
    return dg.MaterializeResult(metadata=metadata)


def _by_distance(drafted: Sequence[Drafted]) -> list[Drafted]:
    """Returns drafts with a look, those with the most evidence first."""
    looked = [one for one in drafted if one.evidence is not None and one.evidence.as_of is not None]
    return sorted(looked, key=lambda one: one.evidence.log_e if one.evidence else 0.0, reverse=True)


def _nearest(drafted: Sequence[Drafted]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "experiment": one.draft.experiment_id,
                "verdict": one.contract["verdict"],
                "reason": one.contract["abstain_reason"],
                "as of": f"{one.draft.as_of:%Y-%m-%d %H:%M}",
                "units": one.evidence.units_in_cells,
                "e-value": one.evidence.e_value,
                "lift": one.evidence.lift,
                "interval": _interval(one.evidence.ci),
            }
            for one in _by_distance(drafted)
            if one.evidence is not None
        ]
    )


def _interval(ci: Sequence[float] | None) -> str:
    return "" if ci is None else f"{ci[0]:+.4f} to {ci[1]:+.4f}"


def _plot(drafted: Sequence[Drafted]) -> str | None:
    nearest = _by_distance(drafted)[:MOST_CURVES]
    return evidence_plot([json.loads(one.draft.document) for one in nearest])


@dg.asset(
    key=VERDICTS,
    deps=[EVIDENCE],
    group_name=f"{PREFIX}_answers",
    owners=OWNERS,
    kinds={"postgres"},
    freshness_policy=FRESHNESS,
)
def verdicts(store: Store) -> dg.MaterializeResult[Any]:
    """The answers that are served: keep, roll back, iterate, or cannot say yet.

    Published with their evidence in one transaction, so that a reader gets a whole old or a whole
    new one. The database itself refuses to rewrite what is decided.
    """
    with store.step() as connection:
        changed = [one.contract for one in publish_verdicts(connection)]
    return dg.MaterializeResult(
        metadata={
            "changed": len(changed),
            "decided": sum(contract["power_state"]["decided"] for contract in changed),
            "verdicts_that_changed": markdown(_contracts(changed)),
        }
    )


def _contracts(contracts: Sequence[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "experiment": contract["experiment_id"],
                "verdict": contract["verdict"],
                "reason": contract["abstain_reason"],
                "decided": contract["power_state"]["decided"],
                "lift": contract["lift"],
                "interval": _interval(contract["ci"]),
                "confidence": contract["confidence"],
                "breaches": ", ".join(contract["guardrail_breaches"]),
            }
            for contract in contracts
        ]
    )


STEPS = (exposures, session_cells, evidence, verdicts)
