"""The assets: a walk, any number of times, in any order, ends in the same bytes."""

from typing import Any

import dagster as dg
import pytest

from orchestration.dagster.assets import STEPS, session_cells
from orchestration.dagster.keys import SESSION_CELLS as CELLS
from orchestration.dagster.keys import VERDICTS
from orchestration.dagster.resources import Engine, Store, StoreNotFoundError


def materialization(result, key) -> Any:
    (event,) = [
        event for event in result.get_asset_materialization_events() if event.asset_key == key
    ]
    return event.materialization.metadata


def test_whole_steps_in_any_order_end_like_a_run_which_then_changes_nothing(
    canary, instance, today
) -> None:
    for step in STEPS[::-1] * 4:  # each step sees its input at the latest in the fourth round
        assert dg.materialize(
            [step],
            instance=instance,
            partition_key=today if step is session_cells else None,
            resources={"store": canary.resource, "engine": Engine()},
        ).success
    shuffled = canary.derived()

    result = canary.run("deploy_reward_fast", instance, today)

    assert canary.contract("click")["verdict"] == "keep"
    assert canary.derived() == shuffled
    assert materialization(result, VERDICTS)["changed"].value == 0
    assert materialization(result, CELLS)["added"].value == 0


def test_a_store_that_nobody_named_is_told_of_in_one_line(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_DATA_DIR", str(tmp_path))

    with pytest.raises(StoreNotFoundError, match="SERVICE_DATABASE_URL is not set"):
        Store().setup_for_execution(dg.build_init_resource_context())
