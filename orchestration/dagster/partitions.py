"""The days, in UTC, that session cells are partitioned by: the days of their units' exposure."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from orchestration.dagster.keys import CLOSES_TAG
from orchestration.dagster.resources import StoreNotFoundError, store_url
from storage.pipeline.moments import Days

if TYPE_CHECKING:
    from orchestration.pipeline.batch import Patience

# The days before today that partitions have where there is no store, as where tests load them.
_DAYS_WITHOUT_STORE = 90


def _first_day() -> tuple[date, bool]:
    """Returns the day that partitions begin with, and whether an event is known on it."""
    today = datetime.now(UTC).date()
    with suppress(StoreNotFoundError):
        url = store_url()
        from sqlalchemy.exc import DBAPIError

        from storage.postgres.engine import opened_engine
        from storage.schema.partitions import first_day

        with suppress(DBAPIError), opened_engine(url) as engine, engine.connect() as connection:
            first = first_day(connection)
            return first or today, first is not None
    return today - timedelta(days=_DAYS_WITHOUT_STORE), False


_FIRST, _HAS_EVENT = _first_day()
# Today is a partition from its first minute on: units are counted as their blocks close.
DAYS = dg.DailyPartitionsDefinition(start_date=_FIRST.isoformat(), timezone="UTC", end_offset=1)


def begin_elsewhere(first: date) -> bool:
    """Tells whether partitions as they were loaded do not begin with the day of the first event.

    Days that are dropped after their retention stay as empty ones until the next start.
    """
    return first < _FIRST or (first > _FIRST and not _HAS_EVENT)


# Dagster's own tags, by which any launcher, backfills included, says what a run is of.
PARTITION_TAG = "dagster/partition"
RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def key_of(moment: datetime) -> str:
    """Returns the key of the day that a moment belongs to."""
    return moment.astimezone(UTC).date().isoformat()


def days_of(keys: Sequence[str]) -> Days:
    """Returns the range of the days of these keys, which are in order."""
    return Days(first=date.fromisoformat(keys[0]), last=date.fromisoformat(keys[-1]))


def run_days(tags: Mapping[str, str]) -> Days | None:
    """Returns the days that a run is of, None when it is of none."""
    if PARTITION_TAG in tags:
        return days_of([tags[PARTITION_TAG]])
    if all(tag in tags for tag in RANGE_TAGS):
        return days_of([tags[tag] for tag in RANGE_TAGS])
    return None


def asked_to_close(tags: Mapping[str, str]) -> datetime | None:
    """Returns when the blocks close that the fast schedule requested a run; None of any other."""
    closes_at = tags.get(CLOSES_TAG)
    return None if closes_at is None else datetime.fromisoformat(closes_at)


def patience(tags: Mapping[str, str]) -> "Patience":
    """Returns how long a run's statements may take, and who is tried again."""
    from orchestration.pipeline.batch import FAST, RUN

    return RUN if asked_to_close(tags) is None else FAST
