"""The engine of whole days as a resource: it catches up, reads the past log and checks days."""

import os
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from orchestration.dagster.cells import REBUILT
from orchestration.dagster.keys import SESSION_CELLS
from orchestration.dagster.resources import DayResult, Store, tried_again_when_lost
from orchestration.dagster.table import MOST_ROWS, filled, pages
from storage.pipeline.moments import Days

if TYPE_CHECKING:
    from orchestration.pipeline.day_check import Comparison
    from orchestration.pipeline.whole_days import LakeDays
    from storage.lake.day_engines import DayEngineSettings


class DayEngine(dg.ConfigurableResource[Any]):
    """The engine of whole days: DuckDB in the run's own process, or Spark on a cluster."""

    name: str | None = Field(default=None, description="By default SERVICE_ENGINE, else duckdb.")
    spark_remote: str | None = Field(
        default=None,
        description="By default SERVICE_SPARK_REMOTE. Use an `EnvVar` where it holds a token.",
    )
    memory_mib: int | None = Field(
        default=None, description="By default SERVICE_ENGINE_MEMORY_MIB, else 1024."
    )
    threads: int | None = Field(
        default=None, description="By default SERVICE_ENGINE_THREADS, else 1."
    )

    @property
    def settings(self) -> "DayEngineSettings":
        """The settings."""
        from storage.lake.day_engines import ENGINE, MEMORY, REMOTE, THREADS, day_engine_settings

        chosen = {
            ENGINE: self.name,
            REMOTE: self.spark_remote,
            MEMORY: self.memory_mib,
            THREADS: self.threads,
        }
        named = {name: str(value) for name, value in chosen.items() if value is not None}
        return day_engine_settings({**os.environ, **named})

    @property
    def days(self) -> "LakeDays":
        """The reader of whole days for the steps."""
        from orchestration.pipeline.whole_days import LakeDays

        return LakeDays(settings=self.settings)

    def check(
        self, context: dg.AssetExecutionContext, store: Store, days: Days, *, swap: bool
    ) -> dict[date, DayResult]:
        """Computes days anew from the log, and reports the differences of each."""
        from orchestration.pipeline.day_check import compare_days
        from storage.schema.clock import closed_instant
        from storage.upkeep.check_results import note_self_check
        from storage.upkeep.reading import separate_reading

        with store.reading() as connection:
            as_of = closed_instant(connection)
        with tried_again_when_lost(), separate_reading(store.engine, swaps=swap) as separate:
            comparison = compare_days(
                separate, days.first, days.last, as_of=as_of, settings=self.settings, swap=swap
            )
        checked: dict[date, DayResult] = {}
        with store.reading() as connection:
            for day in days.each:
                each = comparison.on(day)
                checked[day] = DayResult(
                    differing_hours=len(each.hours),
                    is_cured=_is_cured(each, swapped=swap),
                    unequal=frozenset(_unequal_experiments(each, swapped=swap)),
                )
                note_self_check(
                    connection,
                    day=day,
                    equal=_is_equal(each, swapped=swap),
                    unequal=checked[day].unequal,
                    swapped=_differing(each) if swap else (),
                )
                event: Any = _evaluation(day, each, swapped=swap)
                context.log_event(event)
                context.log.info("session_cells: %s, %s hours differed", day, len(each.hours))
        return checked


def _evaluation(day: date, comparison: "Comparison", *, swapped: bool) -> dg.AssetCheckEvaluation:
    """Returns the result of the check for a day."""
    decided = sorted(_differing(comparison) & {*comparison.decided})
    unknown = _is_equal(comparison, swapped=swapped) is None and not comparison.lives
    return dg.AssetCheckEvaluation(
        asset_key=SESSION_CELLS,
        check_name=REBUILT.name,
        partition=day.isoformat(),
        passed=not decided and not unknown and _is_cured(comparison, swapped=swapped),
        severity=dg.AssetCheckSeverity.WARN if unknown else dg.AssetCheckSeverity.ERROR,
        metadata={
            "experiments": len(comparison.lives),
            "different_hours": len(comparison.hours),
            "swapped_in": swapped,
            **filled(
                without_their_events=list(comparison.gone[:MOST_ROWS]),
                not_computed=list(comparison.not_computed)[:MOST_ROWS],
                differing=[
                    f"{hour.experiment_id} {hour.sentence}" for hour in comparison.hours[:MOST_ROWS]
                ],
                decided=pages(decided[:MOST_ROWS]),
                different_verdicts=pages(comparison.verdicts[:MOST_ROWS]),
            ),
        },
    )


def _is_cured(comparison: "Comparison", *, swapped: bool) -> bool:
    """Tells whether the served rows are those of the log, and their verdicts those served.

    A verdict that is open follows from rows that are swapped in at its next look.
    """
    verdicts = comparison.verdicts
    if swapped:
        verdicts = [each for each in verdicts if each in comparison.decided]
    return not comparison.not_computed and not verdicts and (swapped or not comparison.hours)


def _unequal_experiments(comparison: "Comparison", *, swapped: bool) -> set[str]:
    """Returns the experiments whose rows, or whose decided verdicts, are not those of the log."""
    rows = set[str]() if swapped else _differing(comparison)
    return rows | ({*comparison.verdicts} & {*comparison.decided})


def _is_equal(comparison: "Comparison", *, swapped: bool) -> bool | None:
    """Tells whether a day equals the log; None where not all of it could be computed."""
    if _unequal_experiments(comparison, swapped=swapped) or (comparison.verdicts and not swapped):
        return False
    return None if comparison.gone or comparison.not_computed else True


def _differing(comparison: "Comparison") -> set[str]:
    return {hour.experiment_id for hour in comparison.hours}
