"""The schedules of sealing and of the day: each hour's files, and once all of a settled day."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from orchestration.dagster.schedules import each_day, each_hour
from storage.upkeep.gauges import read_gauges
from tests.processes.runs import tick

TICK = datetime.now(UTC).replace(second=0, microsecond=0)


def run(canary, on_disk, request) -> Any:
    """The run that a tick of the schedule of the day asked for."""
    day, tags = request.partition_key, request.tags
    return canary.run("deploy_reward_day", on_disk, day, tags=tags, raise_on_error=False)


@pytest.mark.nightly
def test_each_hour_is_sealed_on_its_own_day(canary, on_disk) -> None:
    (request,) = tick(each_hour, canary.url, on_disk, at=TICK).run_requests
    result = canary.run("deploy_reward_sealing", on_disk, request.partition_key)

    assert request.partition_key == (TICK - timedelta(hours=1)).date().isoformat()
    assert result.success
    with canary.engine.begin() as connection:
        assert read_gauges(connection).unsealed_hours == 0


def test_a_settled_day_is_rebuilt_once_with_every_check(walked, on_disk) -> None:
    first_day = walked.first_day.date().isoformat()
    walked.tamper("DELETE FROM cells WHERE experiment_id = '{view}'")

    (request,) = tick(each_day, walked.url, on_disk, at=TICK).run_requests
    result = run(walked, on_disk, request)

    assert request.partition_key == first_day
    assert result.success
    assert len(result.get_asset_check_evaluations()) == 9
    (later,) = tick(each_day, walked.url, on_disk, at=TICK).run_requests
    assert later.partition_key == (walked.first_day + timedelta(days=1)).date().isoformat()


def test_a_settled_day_whose_run_failed_is_tried_again_and_then_left(
    walked, on_disk, monkeypatch
) -> None:
    monkeypatch.setenv("SERVICE_ENGINE_MEMORY_MIB", "1")
    days = []
    for turn in range(4):
        (request,) = tick(each_day, walked.url, on_disk, at=TICK).run_requests
        days.append(request.partition_key)
        if not turn:
            assert not run(walked, on_disk, request).success
            (failed,) = on_disk.get_runs(limit=1)
        else:
            on_disk.add_run(failed._replace(run_id=str(uuid4()), tags={**failed.tags}))

    second = (walked.first_day + timedelta(days=1)).date().isoformat()
    assert days == [walked.first_day.date().isoformat()] * 3 + [second]


@pytest.mark.nightly
def test_a_day_whose_outcomes_can_still_come_is_not_rebuilt(walked, on_disk) -> None:
    walked.tamper("UPDATE cursors SET at = at - interval '9 days' WHERE stage = 'cells/activation'")

    assert not tick(each_day, walked.url, on_disk, at=TICK).run_requests


def test_yesterday_has_a_run_where_nobody_measures_anything(store, on_disk) -> None:
    (request,) = tick(each_day, store.url, on_disk, at=TICK).run_requests

    assert request.partition_key == (TICK - timedelta(days=1)).date().isoformat()
