"""Session cells as an asset: closed cells are added, and a day is computed anew from the log."""

import time
import warnings
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import dagster as dg
from pydantic import Field

from orchestration.dagster.keys import (
    EXPOSURES,
    FRESHNESS,
    OWNERS,
    PREFIX,
    REVENUE_EVENTS,
    RUNTIME_EVENTS,
    SESSION_CELLS,
    TAGS,
    table_metadata,
)
from orchestration.dagster.partitions import DAYS, patience, run_days
from orchestration.dagster.resources import DayResult, Engine, Store
from storage.pipeline.moments import Days

# --- The check of a day ---------------------------------------------------------------------------

_MOST_NAMED = 20
REBUILT = dg.AssetCheckKey(SESSION_CELLS, "rebuild_equals_increment")

with warnings.catch_warnings():
    # Each day has a result of its own, which Dagster calls a preview yet.
    warnings.simplefilter("ignore", dg.PreviewWarning)
    CHECK = dg.AssetCheckSpec(
        REBUILT.name,
        asset=SESSION_CELLS,
        partitions_def=DAYS,
        description="The day, computed anew from the log, has the same exposures, sightings,"
        " outcomes and cells as those built block by block, hour for hour; and the verdicts and"
        " evidence that follow from the served cells are, byte for byte, those served.\n\n"
        "A materialization of the day compares all experiments that read it, those that were"
        " decided on it from their first block on, and serves an experiment that differs as the log"
        " gives it, all of its days. By itself the check changes nothing. **When it fails**, the"
        " log or what was derived from it has changed since: the hours that differ are below, by"
        " table. *Materialize* the day here, and its experiments are as the log gives them. Rows"
        " under a decided verdict fail the check once more as they are swapped in: `deploy-reward"
        " audit` says whether the verdict, which is never rewritten, follows from them. Experiments"
        " that cannot be computed are `not_computed`: see `no_experiment_is_set_aside`.",
    )


# --- The asset ------------------------------------------------------------------------------------


class CellsRun(dg.Config):
    """How a run computes session cells."""

    increment: bool = Field(
        default=False,
        description="Only adds what has closed since the last run, as the fast schedule does. Else"
        " the days of the run are computed anew from the log, and what differs is swapped in.",
    )


with warnings.catch_warnings():
    # A run computes a range of days; Dagster has this for long and still calls it beta.
    warnings.simplefilter("ignore", dg.BetaWarning)

    # A run of the check alone compares, and swaps nothing in.
    @dg.multi_asset(
        name="__".join(SESSION_CELLS.path),
        specs=[
            dg.AssetSpec(
                SESSION_CELLS,
                deps=[EXPOSURES, RUNTIME_EVENTS, REVENUE_EVENTS],
                description="Its result: units and conversions of each block, stratum and arm.\n\n"
                "- **Final** once the outcomes of a block have closed: its end, the metric's"
                " window, the grace.\n"
                "- **A partition** holds the cells of the units that were first exposed on that"
                " day. To materialize it is to compute the day anew from the log and to swap in"
                " what differs; `rebuild_equals_increment` says whether it equals the log. A run"
                " whose config says `increment`, as the fast schedule's does, adds whatever closed,"
                " on any day, and reports days that came by a replay.\n"
                "- **Backfill** any days in any order, by *Materialize* here or by `dagster asset"
                " materialize`; a range is a single run. Where several days of a decided"
                " experiment differ, a day fails alone: its message says which to backfill"
                " together.\n"
                "- **Served** as looks in `GET /v1/reward/{experiment_id}/evidence`.",
                group_name=f"{PREFIX}_units",
                owners=OWNERS,
                tags=TAGS,
                kinds={"python", "postgres"},
                metadata=table_metadata(SESSION_CELLS),
                freshness_policy=FRESHNESS,
            )
        ],
        check_specs=[CHECK],
        can_subset=True,
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def session_cells(
        context: dg.AssetExecutionContext,
        config: CellsRun,
        store: Store,
        engine: dg.ResourceParam[Engine],
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """Adds the cells that have closed, and computes the days of the run anew from the log."""
        from orchestration.pipeline.steps import close_cells

        begun, days = time.monotonic(), run_days(context.run.tags)
        swap, added = bool(context.selected_asset_keys), 0
        if swap:
            with store.step("session_cells") as connection:
                given = patience(context.run.tags)
                added = close_cells(connection, engine.days, patience=given)
            context.log.info("session_cells: %s added", added)
        checked: Mapping[date, DayResult] = {}
        if days is not None and not (swap and config.increment):
            checked = engine.check(context, store, days, swap=swap)
        if swap:
            _report(context, store, days, checked)
            if config.increment and days is not None:
                _report_earlier(context, store, before=days.first)
            facts = {"added": added, "seconds": round(time.monotonic() - begun, 3)}
            yield dg.MaterializeResult(asset_key=SESSION_CELLS, metadata=facts)


def _report(
    context: dg.AssetExecutionContext,
    store: Store,
    days: Days | None,
    checked: Mapping[date, DayResult],
) -> None:
    """Reports the run's days, and fails it where some of them are not as the log gives them."""
    from storage.views.counts import cells_of_days

    wrong = [day for day, each in checked.items() if not each.is_cured]
    with store.reading() as connection:
        cells = cells_of_days(connection, days.each if days else [])
    for day, count in cells.items():
        metadata: dict[str, Any] = {"dagster/partition_row_count": count}
        if day in checked:
            metadata["hours_that_differed"] = checked[day].differing_hours
        if not wrong:
            context.add_asset_metadata(metadata, SESSION_CELLS, day.isoformat())
        elif day not in wrong:
            right = dg.AssetMaterialization(
                SESSION_CELLS, partition=day.isoformat(), metadata=metadata
            )
            context.log_event(right)
    if wrong:
        unequal = {each for day in wrong for each in checked[day].unequal}
        named = ", ".join(sorted(unequal)[:_MOST_NAMED])
        audit = f" `deploy-reward audit` compares what is decided: {named}." if named else ""
        raise dg.Failure(
            f"{', '.join(map(str, wrong))}: not as the log gives it; {REBUILT.name} says why."
            f"{audit}",
            allow_retries=False,
        )


def _report_earlier(context: dg.AssetExecutionContext, store: Store, *, before: date) -> None:
    """Reports earlier days of which nothing was ever reported, as those of a replay.

    Their cells are served since this run or an earlier run, or there are none; Dagster would show
    them as missing until each had a run of its own. A day that is not as the log gives it stays so.
    """
    from storage.views.counts import cells_of_days, unequal_days

    known = context.instance.get_materialized_partitions(SESSION_CELLS)
    keys = (key for key in DAYS.get_partition_keys() if key < before.isoformat())
    days = [date.fromisoformat(key) for key in keys if key not in known]
    with store.reading() as connection:
        wrong = unequal_days(connection, days)
        cells = cells_of_days(connection, [day for day in days if day not in wrong])
    for day, count in cells.items():
        metadata = {"dagster/partition_row_count": count}
        context.log_event(
            dg.AssetMaterialization(SESSION_CELLS, partition=day.isoformat(), metadata=metadata)
        )
