"""Session cells as an asset: closed cells are added, and a day is computed anew from the log."""

import time
import warnings
from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

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
from orchestration.dagster.resources import Engine, Store
from orchestration.dagster.table import MOST_ROWS, filled, pages
from storage.pipeline.moments import Days

if TYPE_CHECKING:
    from orchestration.pipeline.day_check import Comparison

# --- The check of a day ---------------------------------------------------------------------------

REBUILT = dg.AssetCheckKey(SESSION_CELLS, "rebuild_equals_increment")

with warnings.catch_warnings():
    # Each day has a result of its own, which Dagster calls a preview yet.
    warnings.simplefilter("ignore", dg.PreviewWarning)
    CHECK = dg.AssetCheckSpec(
        REBUILT.name,
        asset=SESSION_CELLS,
        partitions_def=DAYS,
        description="The day, computed anew from the log, has the same exposures, sightings,"
        " outcomes and cells as those built block by block, row for row; and the verdicts and"
        " evidence that follow from the served cells are, byte for byte, those served.\n\n"
        "A materialization of the day compares all experiments that read it, those that were"
        " decided on it from their first block on, and swaps in what differs. By itself the"
        " check changes nothing. **When it fails**, the log or what was derived from it has"
        " changed since: the rows that differ are below, `served` and `raw`. *Materialize* the"
        " day here, and it is as the log gives it. Rows under a decided verdict fail the check"
        " once more as they are swapped in: `deploy-reward audit` says whether the verdict,"
        " which is never rewritten, follows from them. Experiments that cannot be computed are"
        " `not_computed`: see `no_experiment_is_set_aside`.",
    )


def evaluation(day: date, comparison: "Comparison", *, swapped: bool) -> dg.AssetCheckEvaluation:
    """Returns the result of the check for a day."""
    decided = sorted(_differing(comparison) & {*comparison.decided})
    unknown = is_equal(comparison, swapped=swapped) is None and not comparison.experiments
    return dg.AssetCheckEvaluation(
        asset_key=SESSION_CELLS,
        check_name=REBUILT.name,
        partition=day.isoformat(),
        passed=not decided and not unknown and is_cured(comparison, swapped=swapped),
        severity=dg.AssetCheckSeverity.WARN if unknown else dg.AssetCheckSeverity.ERROR,
        metadata={
            "experiments": comparison.experiments,
            "different_rows": differing_rows(comparison),
            "swapped_in": swapped,
            **filled(
                without_their_events=list(comparison.gone[:MOST_ROWS]),
                not_computed=list(comparison.not_computed)[:MOST_ROWS],
                differing=[count.sentence for count in comparison.counts[:MOST_ROWS]],
                first_rows=[
                    f"{row.experiment_id} {row.sentence}" for row in comparison.rows[:MOST_ROWS]
                ],
                decided=pages(decided[:MOST_ROWS]),
                different_verdicts=pages(comparison.verdicts[:MOST_ROWS]),
            ),
        },
    )


def is_cured(comparison: "Comparison", *, swapped: bool) -> bool:
    """Tells whether the served rows are those of the log, and their verdicts those served.

    A verdict that is open follows from rows that are swapped in at its next look.
    """
    verdicts = comparison.verdicts
    if swapped:
        verdicts = [each for each in verdicts if each in comparison.decided]
    return not comparison.not_computed and not verdicts and (swapped or not comparison.counts)


def unequal_experiments(comparison: "Comparison", *, swapped: bool) -> set[str]:
    """Returns the experiments whose rows, or whose decided verdicts, are not those of the log."""
    rows = set[str]() if swapped else _differing(comparison)
    return rows | ({*comparison.verdicts} & {*comparison.decided})


def is_equal(comparison: "Comparison", *, swapped: bool) -> bool | None:
    """Tells whether a day equals the log; None where not all of it could be computed."""
    if unequal_experiments(comparison, swapped=swapped) or (comparison.verdicts and not swapped):
        return False
    return None if comparison.gone or comparison.not_computed else True


def _differing(comparison: "Comparison") -> set[str]:
    return {count.experiment_id for count in comparison.counts}


def differing_rows(comparison: "Comparison") -> int:
    """Returns how many rows differed."""
    return sum(count.total for count in comparison.counts)


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
                " what differs; it is green once the day equals the log. A run whose config says"
                " `increment`, as the fast schedule's does, adds whatever closed, on any day.\n"
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
        context: dg.AssetExecutionContext, config: CellsRun, store: Store, engine: Engine
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """Adds the cells that have closed, and computes the days of the run anew from the log."""
        from orchestration.pipeline.steps import close_cells

        begun, days = time.monotonic(), run_days(context.run.tags)
        swap, added = bool(context.selected_asset_keys), 0
        if swap:
            with store.step("session_cells") as connection:
                given = patience(context.run.tags)
                added = close_cells(connection, settings=engine.settings, patience=given)
            context.log.info("session_cells: %s added", added)
        compared: dict[date, Comparison] = {}
        if days is not None and not (swap and config.increment):
            compared = _compare(context, store, engine, days, swap=swap)
        if swap:
            _report(context, store, days, compared)
            facts = {"added": added, "seconds": round(time.monotonic() - begun, 3)}
            yield dg.MaterializeResult(asset_key=SESSION_CELLS, metadata=facts)


def _report(
    context: dg.AssetExecutionContext,
    store: Store,
    days: Days | None,
    compared: dict[date, "Comparison"],
) -> None:
    """Reports the run's days, and fails it where some of them are not as the log gives them."""
    from storage.views.counts import cells_of_days

    wrong = [day for day, each in compared.items() if not is_cured(each, swapped=True)]
    with store.reading() as connection:
        cells = cells_of_days(connection, days.each if days else [])
    for day, count in cells.items():
        metadata: dict[str, Any] = {"dagster/partition_row_count": count}
        if day in compared:
            metadata["rows_that_differed"] = differing_rows(compared[day])
        if not wrong:
            context.add_asset_metadata(metadata, SESSION_CELLS, day.isoformat())
        elif day not in wrong:
            right = dg.AssetMaterialization(
                SESSION_CELLS, partition=day.isoformat(), metadata=metadata
            )
            context.log_event(right)
    if wrong:
        decided = {
            each for day in wrong for each in unequal_experiments(compared[day], swapped=True)
        }
        advice = _advice(store, days, sorted(decided)) if days and decided else ""
        raise dg.Failure(
            f"{', '.join(map(str, wrong))}: not as the log gives it; {REBUILT.name} says why."
            f"{advice}",
            allow_retries=False,
        )


def _advice(store: Store, days: Days, decided: Sequence[str]) -> str:
    """Returns the days to backfill together, or the audit to run, of decided verdicts."""
    from storage.upkeep.day_check import days_of_experiments

    with store.reading() as connection:
        span = days_of_experiments(connection, decided)
    named = ", ".join(decided[:MOST_ROWS])
    if days.first <= span.first and span.last <= days.last:
        return f" `deploy-reward audit {decided[0]}` compares what is decided: {named}."
    return (
        f" What is decided rests on other days too: backfill {span.first} to {span.last} together"
        f" ({named})."
    )


def _compare(
    context: dg.AssetExecutionContext, store: Store, engine: Engine, days: Days, *, swap: bool
) -> dict[date, "Comparison"]:
    """Computes days anew from the log, and returns the differences of each."""
    from orchestration.pipeline.day_check import compare_days
    from storage.schema.clock import closed_instant
    from storage.upkeep.check_results import note_self_check

    with store.reading() as connection:
        as_of = closed_instant(connection)
    with store.separate_reading(swaps=swap) as separate:
        comparison = compare_days(
            separate, days.first, days.last, as_of=as_of, settings=engine.settings, swap=swap
        )
    compared = {day: comparison.on(day) for day in days.each}
    with store.reading() as connection:
        for day, each in compared.items():
            note_self_check(
                connection,
                day=day,
                equal=is_equal(each, swapped=swap),
                unequal=unequal_experiments(each, swapped=swap),
                swapped=_differing(each) if swap else (),
            )
            event: Any = evaluation(day, each, swapped=swap)
            context.log_event(event)
            context.log.info("session_cells: %s, %s rows differed", day, differing_rows(each))
    return compared
