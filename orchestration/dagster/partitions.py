"""The days, in UTC, that session cells are partitioned by: the days of their units' exposure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime

import dagster as dg

from orchestration.dagster.keys import CLOSES_TAG
from orchestration.pipeline.batch import FAST, RUN, Patience
from storage.pipeline.comparison import Days

# Today is a partition from its first minute on: units are counted as their blocks close. Cells
# of imported history before the first day are computed like all others, but have no partition.
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone="UTC", end_offset=1)

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


def patience(tags: Mapping[str, str]) -> Patience:
    """Returns how long a run's statements may take, and who is tried again."""
    return RUN if asked_to_close(tags) is None else FAST
