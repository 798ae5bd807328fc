"""The sealed log as an asset: hours of receipt in files, and the check of what they hold."""

import warnings
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from orchestration.dagster.keys import (
    FRESHNESS,
    OWNERS,
    PREFIX,
    RUNTIME_EVENTS,
    SEALED_LOG,
    TAGS,
    table_metadata,
)
from orchestration.dagster.partitions import DAYS, run_days
from orchestration.dagster.resources import Store
from orchestration.dagster.table import markdown, plain
from storage.lake.comparison import SealedDay, compare_files, sealed_day
from storage.lake.lake import open_lake
from storage.lake.removal import delete_unlisted
from storage.lake.scrubbing import scrub
from storage.lake.sealing import SealedRun, Sealer
from storage.log.status import note_sealing, read_sealing

# A run seals so many hours, and the next run the rest.
_MOST_SECONDS = 1200.0
_SHOWN = 20


with warnings.catch_warnings():
    # A run seals a range of days; Dagster has this for long and still calls it beta.
    warnings.simplefilter("ignore", dg.BetaWarning)

    @dg.asset(
        key=SEALED_LOG,
        deps=[RUNTIME_EVENTS],
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=f"{PREFIX}_units",
        owners=OWNERS,
        tags=TAGS,
        kinds={"python", "postgres", "parquet"},
        metadata=table_metadata(SEALED_LOG),
        freshness_policy=FRESHNESS,
    )
    def sealed_log(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult[Any]:
        """The log in files: each hour of receipt in Parquet, for whatever reads whole days.

        - **Final** once its hour has ended and its files are listed in `sealed_hours`. History that
          is sent later makes a further part of its hour.
        - **Backfill**: none is needed. Any run seals all ended hours, on whichever day, and
          reports its own days, each with its own counts; a run without a partition is today's.
        - **A failure** stops nothing: the hours wait, PostgreSQL keeps their events, and the check
          below names the error.
        - **Read** it with your own DuckDB, Spark or Athena: see the page on the lake in the
          documentation.
        """
        run, error = _sealed(store)
        requested = run_days(context.run.tags)
        days = requested.each if requested else [datetime.now(UTC).date()]
        with store.reading() as connection:
            status = read_sealing(connection)
            reports = {day: _of_day(sealed_day(connection, day)) for day in days}
        for day, report in reports.items():
            if requested:
                context.add_asset_metadata(report, partition_key=day.isoformat())
            else:
                context.log_event(
                    dg.AssetMaterialization(SEALED_LOG, partition=day.isoformat(), metadata=report)
                )
        return dg.MaterializeResult(
            metadata={
                "sealed_now": run.hours,
                "rows_sealed_now": run.rows,
                "rows_a_second": round(run.rows / run.seconds) if run.seconds else 0,
                "hours_waiting": status.waiting_hours,
                **({"error": error} if error else {}),
            }
        )


def _of_day(day: SealedDay) -> dict[str, Any]:
    return {
        "dagster/partition_row_count": day.rows,
        "hours": day.hours,
        "files": day.files,
        "bytes": day.size,
        "bytes_an_event": round(day.size / day.rows, 2) if day.rows else 0.0,
    }


def _sealed(store: Store) -> tuple[SealedRun, str | None]:
    """Seals the hours that have ended; a failure is noted, and later hours go on."""
    run, error = SealedRun(), None
    try:
        lake = open_lake()
        run = Sealer(engine=store.engine, lake=lake).seal(most_seconds=_MOST_SECONDS) or run
        delete_unlisted(store.engine, lake)
    except Exception as failure:  # noqa: BLE001 - a bucket fails by errors of its own library
        error = f"{type(failure).__name__}: {failure}".splitlines()[0][:300]
    with store.reading() as connection:
        note_sealing(connection, error=error)
    return run, error


@dg.asset_check(
    asset=SEALED_LOG,
    description="Each file of the sealed log holds what the log held: as many events, the same"
    " sums and digests as PostgreSQL while it has them still, and the bytes that are listed.\n\n"
    "Compares each file once, after it was written, looks at the size of every file, and reads some"
    " of those that alone hold their events, the oldest read first. **When it fails**, look at the"
    " disk or the bucket: the files are named below. No file that is not as it is listed is read:"
    " while PostgreSQL has its events, they are read there, and tonight the file is written anew"
    " from them; put any other one back from a copy of the lake. It fails too while hours cannot be"
    " sealed, and then names the error; events are safe in PostgreSQL meanwhile.",
)
def sealed_hours_hold_what_the_log_held(store: Store) -> dg.AssetCheckResult:
    """Compares each file once, after it was written, and scrubs the others."""
    with store.reading() as connection:
        status = read_sealing(connection)
    with store.reading() as connection:
        compared = compare_files(connection, open_lake())
    with store.reading() as connection:
        # What PostgreSQL holds no longer is compared with nothing: it must be as it is listed.
        scrubbed = scrub(connection, open_lake())
    different = list({file.name: file for file in (*compared.different, *scrubbed)}.values())
    files = [
        {
            "file": plain(difference.name),
            "hour, UTC": f"{difference.hour:%d %b %H:%M}",
            "reason": difference.reason,
        }
        for difference in different[:_SHOWN]
    ]
    return dg.AssetCheckResult(
        passed=not different and status.error is None,
        metadata={
            "compared": compared.files,
            "different": len(different),
            "hours_waiting": status.waiting_hours,
            "compared_at": dg.MetadataValue.timestamp(datetime.now(UTC)),
            **({"error": status.error} if status.error else {}),
            **({"files": markdown(files)} if files else {}),
        },
    )
