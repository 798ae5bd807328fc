"""The store below an asset: a connection that was lost is made again, an error stays an error."""

import threading
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text

from orchestration.dagster.resources import Store, StoreNotFoundError
from storage.schema.clock import DERIVED_LOCK, claim_derived_tables
from tests.processes.api_process import eventually

_WAITING = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = :key AND NOT granted
"""


def kinds(result: Any) -> list[dg.DagsterEventType]:
    return [event.event_type for event in result.all_events]


def test_a_step_that_lost_its_connection_is_tried_again(canary, instance, today) -> None:
    results: list[Any] = []
    run = threading.Thread(
        target=lambda: results.append(
            canary.run("deploy_reward_fast", instance, today, raise_on_error=False)
        )
    )
    with canary.engine.begin() as other:
        claim_derived_tables(other)
        run.start()
        pid = eventually(lambda: other.execute(text(_WAITING), {"key": DERIVED_LOCK}).scalar())
        other.execute(text("SELECT pg_terminate_backend(:pid, 30000)"), {"pid": pid})
    run.join()

    assert results[0].success
    assert kinds(results[0]).count(dg.DagsterEventType.STEP_RESTARTED) == 1
    assert canary.contract("click")["verdict"] == "keep"


def test_an_error_that_would_come_again_is_not_tried_again(canary, instance, today) -> None:
    # No fault of an experiment's data, which would be set aside.
    canary.tamper("ALTER TABLE publication_progress ADD CONSTRAINT broken CHECK (false) NOT VALID")
    result = canary.run("deploy_reward_fast", instance, today, raise_on_error=False)

    assert not result.success
    assert dg.DagsterEventType.STEP_UP_FOR_RETRY not in kinds(result)


def test_a_store_that_nobody_named_is_told_of_in_one_line(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_DATA_DIR", str(tmp_path))

    with pytest.raises(StoreNotFoundError, match="SERVICE_DATABASE_URL is not set"):
        Store().setup_for_execution(dg.build_init_resource_context())
