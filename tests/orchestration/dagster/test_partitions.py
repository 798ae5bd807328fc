"""The code server starts again: for the day of the first event, or for its memory."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from cli.processes.dagster_home import POSTGRES_VARIABLE
from orchestration.dagster.keys import SESSION_CELLS
from orchestration.dagster.resources import Store
from orchestration.dagster.upkeep.partitions_start import first_day
from storage.log.events import RuntimeEvent, append_history
from storage.postgres.dagster_schema import dagster_url
from storage.tenants.projects import create_project
from tests.processes.api_process import eventually
from tests.processes.dagster_web import our_dagster

_DAYS = """
query ($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) { ... on AssetNode { partitionKeys } }
}
"""


@pytest.mark.process
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_partitions_begin_with_the_first_event_though_it_comes_after_the_start(
    store, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv(POSTGRES_VARIABLE, dagster_url(store.url))
    today = datetime.now(UTC).date()
    with our_dagster(tmp_path, store.url) as dagster:

        def days() -> list[str]:
            # While the code server is away nothing is known.
            node = (dagster.ask(_DAYS, key={"path": SESSION_CELLS.path}) or {}).get(
                "assetNodeOrError", {}
            )
            return node.get("partitionKeys", [])

        assert days()[:1] == [today.isoformat()]
        with store.engine.begin() as connection:
            event = RuntimeEvent(
                project_id=create_project(connection, "shop").project_id,
                environment="production",
                event="page_view",
                session_id="s1",
                occurred_at=datetime.now(UTC) - timedelta(days=3),
            )
            append_history(connection, [event])

        first = (today - timedelta(days=3)).isoformat()
        eventually(lambda: days()[:1] == [first], seconds=240)


@pytest.mark.parametrize(
    ("most", "said"),
    [
        ("1", "load this code location again: it takes"),
        ("1000000", "partitions begin with the first event"),
    ],
)
def test_a_code_server_that_grew_beyond_its_memory_is_to_start_again(
    store, monkeypatch, most, said
) -> None:
    monkeypatch.setenv("SERVICE_CODE_SERVER_MIB", most)
    resources = {"store": Store(database_url=store.url)}
    with dg.build_sensor_context(resources=resources) as context:
        assert first_day.evaluate_tick(context).skip_message.startswith(said)


def test_a_memory_that_is_no_number_is_refused_by_its_name(store, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_CODE_SERVER_MIB", "half a gigabyte")
    resources = {"store": Store(database_url=store.url)}
    with (
        dg.build_sensor_context(resources=resources) as context,
        pytest.raises(ValueError, match="SERVICE_CODE_SERVER_MIB"),
    ):
        first_day.evaluate_tick(context)
