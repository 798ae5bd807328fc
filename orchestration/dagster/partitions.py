"""The days, in UTC, that session cells are partitioned by: the days of their units' exposure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

import dagster as dg

from storage.pipeline.comparison import Days

# Today is a partition from its first minute on: units are counted as their blocks close. Cells
# of imported history before the first day are computed like all others, but have no partition.
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone="UTC", end_offset=1)

# Dagster's own tags, by which any launcher, backfills included, says what a run is of.
PARTITION_TAG = "dagster/partition"
_RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def key_of(moment: datetime) -> str:
    """Returns the key of the day that a moment belongs to."""
    return moment.astimezone(UTC).date().isoformat()


def days_of(keys: Sequence[str]) -> Days:
    """Returns the range of the days of these keys, which are in order."""
    return Days(first=date.fromisoformat(keys[0]), last=date.fromisoformat(keys[-1]))


def days_between(days: Days) -> list[date]:
    """Returns the days of a range, in order."""
    count = (days.last - days.first).days + 1
    return [days.first + timedelta(days=number) for number in range(count)]


def run_days(tags: Mapping[str, str]) -> Days | None:
    """Returns the days that a run is of, None when it is of none."""
    if PARTITION_TAG in tags:
        return days_of([tags[PARTITION_TAG]])
    if all(tag in tags for tag in _RANGE_TAGS):
        return days_of([tags[tag] for tag in _RANGE_TAGS])
    return None


def newest(days: Sequence[date]) -> Days | None:
    """Returns the last of days in order, None when there is none."""
    return Days(first=days[-1], last=days[-1]) if days else None
