"""Backfills: any range of days, in any order, however often, ends in the same bytes."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import dagster as dg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestration.dagster.assets import STEPS, session_cells
from orchestration.dagster.keys import SESSION_CELLS
from orchestration.dagster.partitions import RANGE_TAGS
from orchestration.definitions import resources
from tests.processes.api_process import eventually
from tests.processes.dagster_web import our_dagster
from tests.repetition import examples
from tests.stores.derived import between, derived_of
from tests.stores.emptied import empty_derived_tables

RANGE_START, RANGE_END = RANGE_TAGS
# From a day before the canary's first to today.
DAYS = 6


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """A run of the cells, or of the whole walk, for a range of days counted from the first."""

    first: int
    last: int
    whole: bool

    def run(self, canary: Any, instance: dg.DagsterInstance) -> None:
        first, last = (day_of(canary, day).isoformat() for day in (self.first, self.last))
        result = dg.materialize(
            STEPS if self.whole else [session_cells],
            instance=instance,
            resources=resources(canary.resource),
            **(
                {"partition_key": first}
                if first == last
                else {"tags": {RANGE_START: first, RANGE_END: last}}
            ),
        )
        assert result.success


def day_of(canary: Any, day: int) -> date:
    return (canary.first_day + timedelta(days=day - 1)).date()


@st.composite
def backfills(draw: st.DrawFn) -> Backfill:
    ends = sorted(draw(st.tuples(*[st.integers(0, DAYS - 1)] * 2)))
    return Backfill(first=ends[0], last=ends[1], whole=draw(st.booleans()))


@example(
    backfilled=[
        Backfill(first=1, last=4, whole=False),
        Backfill(first=2, last=2, whole=True),
        Backfill(first=0, last=DAYS - 1, whole=False),
    ],
    walked_before=False,
)
@given(backfilled=st.lists(backfills(), min_size=1, max_size=4), walked_before=st.booleans())
@settings(
    examples(gate=0, deep=200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    database=None,
)
@pytest.mark.timeout(1800)
def test_backfills_of_any_days_in_any_order_change_no_byte(
    canary, instance, backfilled, walked_before
) -> None:
    """The store was walked before, or is empty and walked afterwards."""
    walk = Backfill(first=DAYS - 1, last=DAYS - 1, whole=True)
    if not derived_of(canary.engine)["cells"]:
        walk.run(canary, instance)
    once = derived_of(canary.engine)
    if not walked_before:
        with canary.engine.begin() as connection:
            empty_derived_tables(connection)
    for backfill in backfilled:
        backfill.run(canary, instance)
    if not walked_before:
        walk.run(canary, instance)
    assert canary.contract("click")["verdict"] == "keep"
    assert between(derived_of(canary.engine), once) == {}


_LAUNCH = """
mutation ($assets: [AssetKeyInput!]!, $days: [String!]!) {
  launchPartitionBackfill(backfillParams: {assetSelection: $assets, partitionNames: $days}) {
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
_STATUS = """
query ($id: String!) {
  partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } }
}
"""


@pytest.mark.process
@pytest.mark.deep
@pytest.mark.timeout(600)
def test_a_backfill_from_the_web_server_ends_in_the_same_bytes(canary, instance, tmp_path) -> None:
    with our_dagster(tmp_path, canary.url) as dagster:
        days = [day_of(canary, day).isoformat() for day in range(1, DAYS)]
        for assets in ([SESSION_CELLS], [step.key for step in STEPS]):
            selected = [{"path": key.path} for key in assets]
            launched = dagster.ask(_LAUNCH, assets=selected, days=days)["launchPartitionBackfill"]
            status = {"id": launched["backfillId"]}
            eventually(
                lambda status=status: (
                    dagster.ask(_STATUS, **status)["partitionBackfillOrError"]["status"]
                    == "COMPLETED_SUCCESS"
                ),
                seconds=300,
            )

    backfilled = derived_of(canary.engine)
    assert canary.contract("click")["verdict"] == "keep"
    with canary.engine.begin() as connection:
        empty_derived_tables(connection)
    Backfill(first=DAYS - 1, last=DAYS - 1, whole=True).run(canary, instance)
    assert between(derived_of(canary.engine), backfilled) == {}
