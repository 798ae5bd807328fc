"""The sources: the log that the API writes, observed here and never written."""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from orchestration.dagster.keys import (
    DEPLOYS,
    OWNERS,
    PREFIX,
    REVENUE_EVENTS,
    RUNTIME_EVENTS,
    STATIC_GRAPHS,
    TAGS,
    table_metadata,
    table_of,
)
from orchestration.dagster.resources import Store

if TYPE_CHECKING:
    from storage.views.sources import SourceReading


def _spec(key: dg.AssetKey, description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        description=description,
        group_name=f"{PREFIX}_log",
        owners=OWNERS,
        tags=TAGS,
        kinds={"postgres"},
        metadata=table_metadata(key),
    )


SOURCES = (
    _spec(
        RUNTIME_EVENTS,
        "What the sessions did: posted to `/v1/events`, appended with both clocks (when it"
        " occurred, when it was received) and never changed. Who was exposed to which build, and"
        " what came of it, is read from here alone.\n\n"
        "**Kept** by day of receipt; old days are dropped whole. **Observed** each hour: rows as"
        " PostgreSQL's statistics estimate them, the last hour's counted. Whether they come in"
        " time is a check, below.",
    ),
    _spec(
        REVENUE_EVENTS,
        "Money and the steps before it: posted to `/v1/revenue/events`, each stored once under"
        " its idempotency key, the user a pseudonym.\n\n"
        "**Kept** for good. **Observed** each hour.",
    ),
    _spec(
        DEPLOYS,
        "Which commit was put before users when, on what base and for what share of them: posted"
        " to `/v1/deploys`. Tells the arm of every session by the lineage of its build.\n\n"
        "**Kept** for good. **Observed** each hour; the lag is from a deploy to its report, and"
        " what is reported late is counted from when we knew.",
    ),
    _spec(
        STATIC_GRAPHS,
        "Which routes there are, and the files that each reaches: posted to `/v1/static-graphs`"
        " or with a deploy. Tells which routes a change can have touched.\n\n"
        "**Kept** for good. **Observed** each hour.",
    ),
)


with warnings.catch_warnings():
    # A step observes several sources; Dagster has this since 1.7 and still calls it beta.
    warnings.simplefilter("ignore", dg.BetaWarning)

    @dg.multi_observable_source_asset(specs=SOURCES, name=f"{PREFIX}_log", can_subset=True)
    def log(context: dg.AssetExecutionContext, store: Store) -> Iterator[dg.ObserveResult]:
        """Counts received events, and how late they came."""
        from storage.views.sources import read_sources

        with store.reading() as connection:
            readings = read_sources(connection)
        for spec in SOURCES:
            if spec.key in context.selected_asset_keys:
                yield dg.ObserveResult(
                    asset_key=spec.key, metadata=_metadata(readings[table_of(spec.key)])
                )


def _metadata(reading: "SourceReading") -> dict[str, dg.MetadataValue]:
    known: dict[str, dg.MetadataValue] = {
        "dagster/row_count": dg.MetadataValue.int(reading.rows),
        "rows_in_last_hour": dg.MetadataValue.int(reading.last_hour),
    }
    if reading.newest is not None:
        known["newest"] = dg.MetadataValue.timestamp(reading.newest)
    if reading.lag_seconds is not None:
        known["lag_seconds"] = dg.MetadataValue.float(reading.lag_seconds)
    return known
