"""The sealed log as an asset: hours of receipt in files, and the check of what they hold."""

import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from orchestration.dagster.keys import (
    OWNERS,
    PREFIX,
    RUNTIME_EVENTS,
    SEALED_FRESHNESS,
    SEALED_LOG,
    TAGS,
    table_metadata,
)
from orchestration.dagster.partitions import DAYS, run_days
from orchestration.dagster.resources import Store
from orchestration.dagster.table import markdown, plain

if TYPE_CHECKING:
    from storage.lake.comparison import DifferentFile, SealedDay
    from storage.lake.sealing import SealedRun
    from storage.log.status import SealingStatus

# A run seals so many hours, and the next run the rest.
_MOST_SECONDS = 1200.0


class SealingRun(dg.Config):
    """How a run seals."""

    increment: bool = Field(
        default=False,
        description="Only seals what has ended, as the schedule does each hour. Else each file of"
        " the run's days is read whole as well.",
    )


SEALED = dg.AssetCheckKey(SEALED_LOG, "sealed_hours_hold_what_the_log_held")

with warnings.catch_warnings():
    # A run seals a range of days, and each has a result of its own: beta and preview still.
    warnings.simplefilter("ignore", dg.BetaWarning)
    warnings.simplefilter("ignore", dg.PreviewWarning)

    @dg.multi_asset(
        name="__".join(SEALED_LOG.path),
        specs=[
            dg.AssetSpec(
                SEALED_LOG,
                deps=[RUNTIME_EVENTS],
                description="The log in files: each hour of receipt in Parquet, for whatever reads"
                " whole days.\n\n"
                "- **Final** once its hour has ended and its files are listed in `sealed_hours`."
                " History that is sent later makes a further part of its hour.\n"
                "- **A partition** holds the hours of a day. To materialize it seals all hours that"
                " have ended, and reads each file of the day whole; a run without a partition is"
                " today's.\n"
                "- **A failure** stops nothing: the hours wait, PostgreSQL keeps their events, and"
                " the check below names the error.\n"
                "- **Read** it with your own DuckDB, Spark or Athena: see the page on the lake in"
                " the documentation.",
                group_name=f"{PREFIX}_units",
                owners=OWNERS,
                tags=TAGS,
                kinds={"python", "postgres", "parquet"},
                metadata=table_metadata(SEALED_LOG),
                freshness_policy=SEALED_FRESHNESS,
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(
                SEALED.name,
                asset=SEALED_LOG,
                partitions_def=DAYS,
                description="Each file of the day holds what the log held: the listed bytes and,"
                " while PostgreSQL still has the events, the same number, sums and digests.\n\n"
                "Each run looks at the size of every file, compares those that are new, reads"
                " those of its days, and some of those that alone hold their events, the oldest"
                " read first. **When it fails**, the files are named below: look at the disk or the"
                " bucket. No file that is not as it is listed is read: while PostgreSQL has its"
                " events, they are read there; launch `deploy_reward_housekeeping` to have it"
                " written anew from them. Put any other back from a copy of the lake, then"
                " *materialize* the day here. It fails too while hours cannot be sealed, and then"
                " names the error; events are safe in PostgreSQL meanwhile.",
            )
        ],
        can_subset=True,
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def sealed_log(
        context: dg.AssetExecutionContext, config: SealingRun, store: Store
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """Seals the hours that have ended, and reads the files of the days of the run."""
        from storage.lake.comparison import sealed_day
        from storage.log.status import read_sealing

        seals = bool(context.selected_asset_keys)
        run, error = _sealed(store, seals=seals)
        requested = run_days(context.run.tags)
        days = requested.each if requested else [datetime.now(UTC).date()]
        with store.reading() as connection:
            status = read_sealing(connection)
            reports = {day: _of_day(sealed_day(connection, day)) for day in days}
        for event in _looked_at(store, days, status, whole=not config.increment):
            context.log_event(event)
        context.log.info("sealed_log: %s hours sealed, %s wait", run.hours, status.waiting_hours)
        if not seals:
            return
        for day, report in reports.items():
            if requested:
                context.add_asset_metadata(report, SEALED_LOG, day.isoformat())
            else:
                context.log_event(
                    dg.AssetMaterialization(SEALED_LOG, partition=day.isoformat(), metadata=report)
                )
        yield dg.MaterializeResult(
            asset_key=SEALED_LOG,
            metadata={
                "sealed_now": run.hours,
                "rows_sealed_now": run.rows,
                "rows_a_second": round(run.rows / run.seconds) if run.seconds else 0,
                "hours_waiting": status.waiting_hours,
                **({"error": error} if error else {}),
            },
        )


def _of_day(day: "SealedDay") -> dict[str, int | float]:
    return {
        "dagster/partition_row_count": day.rows,
        "hours": day.hours,
        "files": day.files,
        "bytes": day.size,
        "bytes_an_event": round(day.size / day.rows, 2) if day.rows else 0.0,
    }


def _sealed(store: Store, *, seals: bool) -> tuple["SealedRun", str | None]:
    """Seals the hours that have ended; a failure is noted, and later hours go on."""
    from storage.lake.lake import store_lake
    from storage.lake.removal import delete_unlisted
    from storage.lake.sealing import SealedRun, Sealer
    from storage.log.status import note_sealing

    run, error = SealedRun(), None
    if not seals:
        return run, error
    try:
        lake = store_lake(store.engine)
        run = Sealer(engine=store.engine, lake=lake).seal(most_seconds=_MOST_SECONDS) or run
        delete_unlisted(store.engine, lake)
    except Exception as failure:  # noqa: BLE001 - a bucket fails by errors of its own library
        error = f"{type(failure).__name__}: {failure}".splitlines()[0][:300]
    with store.reading() as connection:
        note_sealing(connection, error=error)
    return run, error


def _looked_at(
    store: Store, days: Sequence[date], status: "SealingStatus", *, whole: bool
) -> Iterator[Any]:
    """Yields the results of the check, of days on which a file was or is wrong as well."""
    from storage.lake.comparison import compare_files, days_with_faults
    from storage.lake.lake import store_lake
    from storage.lake.scrubbing import scrub

    lake = store_lake(store.engine)
    with store.reading() as connection:
        before = days_with_faults(connection)
    with store.reading() as connection:
        compared = compare_files(connection, lake)
    with store.reading() as connection:
        # Files of days that PostgreSQL no longer holds are compared with their listing alone.
        scrubbed = scrub(connection, lake, days=days if whole else ())
    by_day: dict[date, dict[str, DifferentFile]] = {day: {} for day in (*days, *before)}
    for file in (*compared.different, *scrubbed):
        by_day.setdefault(file.hour.astimezone(UTC).date(), {})[file.name] = file
    for day, different in sorted(by_day.items()):
        files = [
            {
                "file": plain(file.name),
                "hour, UTC": f"{file.hour:%d %b %H:%M}",
                "reason": file.reason,
            }
            for file in different.values()
        ]
        error = status.error if day in days else None
        yield dg.AssetCheckEvaluation(
            asset_key=SEALED_LOG,
            check_name=SEALED.name,
            partition=day.isoformat(),
            passed=not different and error is None,
            metadata={
                "compared": compared.files,
                "different": len(different),
                "hours_waiting": status.waiting_hours,
                **({"error": error} if error else {}),
                **({"files": markdown(files)} if different else {}),
            },
        )
