"""The metadata: what Dagster's pages tell of each asset, and nothing of anybody's users."""

import json
from typing import Any

import dagster as dg
import pytest

from orchestration.dagster.assets import TURNED_TAG
from orchestration.dagster.keys import (
    EVIDENCE,
    EXPOSURES,
    LEDGER,
    RUNTIME_EVENTS,
    SESSION_CELLS,
    VERDICTS,
)
from orchestration.dagster.table import plain
from storage.views.published import decided_lately, nearest_to_an_answer
from tests.stores.pipeline_run import run_pipeline

CANARY = "canary-of-a-user"
# Bytes of a materialization's metadata: it is kept with its run.
MOST_BYTES = 100_000


# --- What a run tells ---------------------------------------------------------------------------


def metadata_of(result: Any, key: dg.AssetKey) -> dict[str, Any]:
    own = (None, result.dagster_run.tags["dagster/partition"])
    (event,) = [
        event
        for event in result.get_asset_materialization_events()
        if event.asset_key == key and event.partition in own
    ]
    return {name: value.value for name, value in event.materialization.metadata.items()}


def test_a_run_tells_of_the_units_the_cells_and_the_answers(canary, instance) -> None:
    day = canary.first_day.date().isoformat()
    titled = "commit::jsonb || jsonb_build_object('message', E'Show the cost\\n\\nAs asked.')"
    canary.tamper(f"UPDATE deploys SET commit = ({titled})::json")
    result = canary.run("deploy_reward_fast", instance, day)
    metadata = {
        key: metadata_of(result, key) for key in (EXPOSURES, SESSION_CELLS, EVIDENCE, VERDICTS)
    }

    assert metadata[SESSION_CELLS]["dagster/partition_row_count"] > 100
    assert (
        metadata[VERDICTS]["open"],
        metadata[VERDICTS]["decided"],
        metadata[VERDICTS]["keep"],
    ) == (2, 1, 1)
    assert metadata[EXPOSURES]["added"] == 3 * 1200
    assert metadata[EVIDENCE]["computed_now"] == 3
    # A change's title, and its experiment where it has several: decided, and open.
    decided = metadata[VERDICTS]["“Show the cost”"]
    assert decided.startswith("Keep: click rose by ")
    for of_change in (decided, metadata[EVIDENCE][f"“Show the cost” {canary.experiments['view']}"]):
        assert "VIF 1.0" in of_change
        assert "(data:image/" in of_change
    assert metadata[VERDICTS]["changed"] == 1
    assert metadata[EXPOSURES]["lag_seconds"] >= 0
    assert all(metadata[key]["seconds"] > 0 for key in metadata)
    assert metadata[EVIDENCE]["published_by"] == VERDICTS
    turned = instance.get_run_by_id(result.run_id).tags[TURNED_TAG]
    assert canary.experiments["click"] in turned


def test_a_run_of_the_day_adds_up_verdicts_and_no_page_tells_anything_of_a_user(
    canary, instance, today
) -> None:
    canary.tamper(
        f'UPDATE runtime_events SET properties = \'{{{{"note": "{CANARY}"}}}}\','
        f" flags = '{{{{\"flag\": \"{CANARY}\"}}}}', event_id = '{CANARY}' || ctid::text,"
        f" session_id = '{CANARY}' || session_id, route = '/{CANARY}',"
        f" pseudonym = '{CANARY}'::bytea"
    )
    result = canary.run("deploy_reward_day", instance, today)

    pages = [
        json.dumps({name: str(value.value) for name, value in entry.metadata.items()})
        for entry in (
            *(event.materialization for event in result.get_asset_materialization_events()),
            *(
                event.asset_observation_data.asset_observation
                for event in result.get_asset_observation_events()
            ),
            *result.get_asset_check_evaluations(),
        )
    ]

    observed = {
        event.asset_key: event.asset_observation_data.asset_observation.metadata
        for event in result.get_asset_observation_events()
    }
    assert "dagster/row_count" in observed[RUNTIME_EVENTS]
    assert len(pages) >= 14
    assert not any(CANARY in page for page in pages)
    assert max(map(len, pages)) < MOST_BYTES
    (event,) = (
        event for event in result.get_asset_materialization_events() if event.asset_key == LEDGER
    )
    metadata = {name: value.value for name, value in event.materialization.metadata.items()}
    # Three registrations of a change are three attempts.
    counts = ("judged", "kept", "standing", "rolled_back", "expected_false")
    assert [metadata[name] for name in counts] == [3, 1, 1, 0, 0.02]
    sums = "judged 3; kept 1; stand 1; expected false, at most 0.0; rolled back 0"
    assert sums in metadata["projects"]


# --- What the store says of it --------------------------------------------------------------------


@pytest.fixture
def settled(canary) -> Any:
    """The canary after a run of the pipeline of which Dagster knows nothing."""
    run_pipeline(canary.engine)
    return canary


def test_the_nearest_to_an_answer_comes_first(settled) -> None:
    with settled.engine.connect() as connection:
        nearest = nearest_to_an_answer(connection, limit=5)
        lately = decided_lately(connection, limit=5)

    # A second attempt has a higher threshold to reach.
    reached = [
        experiment.document.totals.e_value * experiment.document.policy.level
        for experiment in nearest
    ]
    assert {experiment.experiment_id for experiment in nearest} == {
        settled.experiments["view"],
        settled.experiments["activation"],
    }
    assert reached == sorted(reached, reverse=True)
    assert [experiment.experiment_id for experiment in lately] == [settled.experiments["click"]]


def test_texts_of_others_are_no_markup() -> None:
    assert plain("a|b [x](y) <b>\n`c`") == r"a\|b \[x\](y) \<b\> \`c\`"
